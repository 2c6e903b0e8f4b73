"""A task of mteb that is made here: captions that look for their scenes."""


def make_task(images, captions):
    """A text-to-image retrieval task: caption i belongs to image i."""
    from datasets import Dataset, Image
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
    from mteb.abstasks.task_metadata import TaskMetadata

    class ScenesRetrieval(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="ScenesT2IRetrieval", description="Captions and their scenes.", type="Any2AnyRetrieval",
            reference=None, dataset={"path": "NA", "revision": "NA"}, category="t2i", eval_splits=["test"],
            eval_langs=["eng-Latn"], main_score="ndcg_at_10", modalities=["text", "image"],
            date=("2026-01-01", "2026-01-01"), domains=[], task_subtypes=[], license="mit",
            annotations_creators="derived", dialect=[], sample_creation="created", bibtex_citation="",
        )  # fmt: skip

        def load_data(self, num_proc=None, **kwargs):
            numbers = range(len(images))
            queries = [{"id": f"q{i}", "text": captions[i]} for i in numbers]
            corpus = [{"id": f"d{i}", "image": images[i]} for i in numbers]
            split = RetrievalSplitData(
                queries=Dataset.from_list(queries),
                corpus=Dataset.from_list(corpus).cast_column("image", Image()),
                relevant_docs={f"q{i}": {f"d{i}": 1} for i in numbers},
                top_ranked=None,
            )
            self.dataset = {"default": {"test": split}}
            self.data_loaded = True

    return ScenesRetrieval()
