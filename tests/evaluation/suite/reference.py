"""Reference implementation of the 38 tasks: loops over the files on disk, to compare the suite's numbers with."""

import io
import tarfile

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image
from sklearn.metrics import balanced_accuracy_score, f1_score, jaccard_score

from tests.evaluation.suite import tree


def samples_of(folder):
    """key -> ending -> content."""
    found = {}
    for path in sorted((folder / "test").glob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                key, ending = member.name.split(".", 1)
                found.setdefault(key, {})[ending] = tar.extractfile(member).read()
    return [found[key] for key in sorted(found)]


def embed(model, contents):
    """mean and variance, float64 (N, D), of images (bytes) or texts."""
    if isinstance(contents[0], bytes):
        z = model.embed_images([Image.open(io.BytesIO(content)) for content in contents])
    else:
        z = model.embed_texts(list(contents))
    return z.mean.double().numpy(), z.log_var.double().exp().numpy()


def nearness(one, other, by):
    """Of one Gaussian and another, each (mean, variance)."""
    cosine = float(one[0] @ other[0]) / np.linalg.norm(one[0]) / np.linalg.norm(other[0])
    return cosine if by == "cosine" else cosine - (one[1].sum() + other[1].sum()) / 2


def scores(one, other, by):
    return np.array(
        [
            [nearness((m, v), (n, w), by) for n, w in zip(*other, strict=True)]
            for m, v in zip(*one, strict=True)
        ]
    )


def classes(model, names, templates):
    """Each prompt normalized, averaged, normalized again; variances averaged."""
    texts = [template.replace("{c}", name) for name in names for template in templates]
    mean, variance = embed(model, texts)
    means, variances = [], []
    for first in range(0, len(texts), len(templates)):
        own = slice(first, first + len(templates))
        middle = np.mean([m / np.linalg.norm(m) for m in mean[own]], axis=0)
        means.append(middle / np.linalg.norm(middle))
        variances.append(variance[own].mean(0))
    return np.array(means), np.array(variances)


def classification(model, folder, key, by):
    samples = samples_of(folder)
    names = (folder / "classnames.txt").read_text().split("\n")[:-1]
    images = embed(model, [sample["png"] for sample in samples])
    near = scores(images, classes(model, names, tree.TEMPLATES), by)
    truth = np.array([int(sample["cls"]) for sample in samples])
    best = near.argmax(1)
    top5 = np.array([label in np.argsort(-row)[:5] for label, row in zip(truth, near, strict=True)])
    if key in tree.RECALL:
        return balanced_accuracy_score(truth, best)
    if key == tree.F1:
        return f1_score(truth, best, labels=np.unique(truth), average="macro", zero_division=0)
    if key in (tree.FMOW, tree.GEODE, tree.DOLLAR):
        groups = [int(np.load(io.BytesIO(sample["npy"]))[0]) for sample in samples]
        right = top5 if key == tree.DOLLAR else best == truth
        return min(right[np.array(groups) == group].mean() for group in set(groups))
    return (best == truth).mean()


def retrieval(model, images, captions, by):
    texts = [(number, text) for number, some in enumerate(captions) for text in some]
    near = scores(embed(model, images), embed(model, [text for _, text in texts]), by)
    to_text = np.mean([texts[int(row.argmax())][0] == number for number, row in enumerate(near)])
    to_image = np.mean(
        [int(column.argmax()) == number for column, (number, _) in zip(near.T, texts, strict=True)]
    )
    return (to_text + to_image) / 2


def winogavil(model, rows, by):
    found = []
    for row in rows:
        if len(row["candidates"]) < 10:
            continue
        cue = row["cue"].lower()
        text = embed(model, [("An " if cue[0] in "aeiou" else "A ") + cue])
        near = scores(text, embed(model, [image["bytes"] for image in row["candidate_images"]]), by)[0]
        truth = np.isin(row["candidates"], row["associations"])
        found.append(jaccard_score(truth, np.isin(np.arange(len(near)), np.argsort(near)[-truth.sum() :])))
    return np.mean(found)


@torch.no_grad()
def main_metric(model, data, key, by):
    folder = data / tree.folder_of(key)
    if key == tree.FLICKR:
        samples = samples_of(folder)
        captions = [sample["txt"].decode().split("\n") for sample in samples]
        return retrieval(model, [sample["png"] for sample in samples], captions, by)
    if key == tree.COCO:
        rows = pq.read_table(folder / "data" / "test-00000-of-00001.parquet").to_pylist()
        return retrieval(model, [row["image"]["bytes"] for row in rows], [row["caption"] for row in rows], by)
    if key == tree.WINO:
        return winogavil(model, pq.read_table(folder / "a.parquet").to_pylist(), by)
    return classification(model, folder, key, by)
