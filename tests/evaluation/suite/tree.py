"""A tiny tree of scenes in the layout of the 38 tasks, with every kind of metric; and a model to evaluate on it."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from prolip.data.sources.tar_format import write_tar
from prolip.gaussian import Gaussian
from prolip.model.create import create
from prolip.preprocessing.tokenizer_builders import train_word_level
from prolip.scenes.captions import NUM_LEVELS, make_caption
from prolip.scenes.random_draws import RandomDraws
from prolip.scenes.rendering import render
from prolip.scenes.tasks import make_tasks
from prolip.scenes.world import get_world

ACC1 = [
    "cifar10", "vtab/cifar100", "vtab/clevr_count_all", "vtab/clevr_closest_object_distance",
    "country211", "vtab/dtd", "vtab/eurosat", "food101", "gtsrb", "imagenet1k", "imagenet_sketch",
    "imagenetv2", "imagenet-a", "imagenet-o", "imagenet-r", "vtab/kitti_closest_vehicle_distance",
    "mnist", "objectnet", "voc2007", "vtab/pcam", "renderedsst2", "vtab/resisc45", "cars", "stl10",
    "sun397", "vtab/svhn", "wilds/camelyon17",
]  # fmt: skip
RECALL = ["vtab/caltech101", "fgvc_aircraft", "vtab/flowers", "vtab/pets"]
F1, FMOW, DOLLAR, GEODE = "wilds/iwildcam", "wilds/fmow", "fairness/dollar_street", "fairness/geode"
FLICKR = "retrieval/flickr_1k_test_image_text_retrieval"
COCO = "retrieval/mscoco_2014_5k_test_image_text_retrieval"
WINO = "misc/winogavil"
IDS = [*ACC1, *RECALL, F1, FMOW, DOLLAR, GEODE, FLICKR, COCO, WINO]
SHIFTS = ["imagenet-a", "imagenet-o", "imagenet-r", "imagenetv2", "imagenet_sketch", "objectnet"]
VTAB = [key for key in IDS if key.startswith("vtab/")] + ["sun397"]
FIELDS = {F1: 9, FMOW: 3, DOLLAR: 3, GEODE: 2, "wilds/camelyon17": 3}  # numbers in the .npy

NUM_IMAGES, SIZE = 12, 32
TEMPLATES = ("a {c}", "a picture of a {c}", "here is a {c}")
WORLD = get_world("simple")


def folder_of(key):
    return f"wds_{key.removeprefix('fairness/').replace('/', '-')}_test"


def png(scene):
    file = io.BytesIO()
    render(scene, SIZE).save(file, format="png", compress_level=1)
    return file.getvalue()


def npy(values):
    file = io.BytesIO()
    np.save(file, np.array(values, dtype=np.int64))
    return file.getvalue()


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_shards(folder, samples, shards=2):
    """samples: of ending -> content; keys are numbers."""
    write_lines(folder / "test" / "nshards.txt", [shards])
    named = [(f"{number:05d}", members) for number, members in enumerate(samples)]
    for shard in range(shards):
        write_tar(folder / "test" / f"{shard}.tar", named[shard::shards])


class RenderedScenes:
    """Images of each scenes task, rendered once; the 38 tasks use the same images with different labels."""

    def __init__(self):
        self.tasks = [
            task for task in make_tasks(WORLD) if task.name in ("shape", "color", "position", "count")
        ]
        self.scenes = {
            task.name: [task.sample(WORLD, 7, index) for index in range(NUM_IMAGES)] for task in self.tasks
        }
        self.pngs = {name: [png(scene) for scene, _ in pairs] for name, pairs in self.scenes.items()}


def write_classification(folder, key, number, drawn):
    """Class names are turned by the task's number, so that no two tasks have the same labels; class 0 of each task has
    no image, others have several."""
    task = drawn.tasks[number % len(drawn.tasks)]
    count = len(task.class_names)
    write_lines(folder / "classnames.txt", np.roll(task.class_names, number))
    write_lines(folder / "zeroshot_classification_templates.txt", TEMPLATES)
    samples = []
    for index, (_, label) in enumerate(drawn.scenes[task.name]):
        turned = (label + number) % count
        members = {"png": drawn.pngs[task.name][index], "cls": str(turned or 1).encode()}
        if key in FIELDS:
            members["npy"] = npy([(index * index + number) % 4, index % 3, *range(FIELDS[key] - 2)])
        samples.append(members)
    write_shards(folder, samples)


def captions_of(index, count=3):
    scene, draws = WORLD.draw_scene(11, index), RandomDraws(11, index, 5)
    return scene, [make_caption(scene, NUM_LEVELS - 1, draws, WORLD).text for _ in range(count)]


def write_retrieval(folder):
    write_lines(folder / "dataset_type.txt", ["retrieval"])
    pairs = [captions_of(index) for index in range(NUM_IMAGES)]
    write_shards(folder, [{"png": png(scene), "txt": "\n".join(texts).encode()} for scene, texts in pairs])


def write_retrieval_parquet(folder):
    """As Hugging Face has it: data/test-00000-of-00001.parquet beside another split, which doesn't count."""
    (folder / "data").mkdir(parents=True)
    pairs = [captions_of(100 + index, 1 + index % 3) for index in range(NUM_IMAGES)]
    rows = [{"image": {"bytes": png(scene), "path": None}, "caption": texts} for scene, texts in pairs]
    pq.write_table(
        pa.Table.from_pylist(rows), folder / "data" / "test-00000-of-00001.parquet", row_group_size=5
    )
    pq.write_table(pa.Table.from_pylist(rows[:1]), folder / "data" / "train-00000-of-00001.parquet")


def winogavil_rows(drawn, sizes=(5, 6, 10, 12, 10, 5, 12)):
    images = [
        (f"{task.name} {index}", drawn.pngs[task.name][index])
        for task in drawn.tasks
        for index in range(NUM_IMAGES)
    ]
    rows = []
    for number, size in enumerate(sizes):
        chosen = [images[i] for i in RandomDraws(3, number).sample(len(images), size)]
        names = [name for name, _ in chosen]
        rows.append(
            {
                "candidates": names,
                "candidate_images": [{"bytes": content, "path": f"{name}.png"} for name, content in chosen],
                "cue": ("Orange", "circle", "Up", "STAR")[number % 4],
                "associations": names[1 : 3 + number % 3],
                "num_candidates": size,
            }
        )
    return rows


def write_tree(data, keys=IDS):
    drawn = RenderedScenes()
    for number, key in enumerate(IDS):
        folder = data / folder_of(key)
        if key not in keys:
            continue
        if key == FLICKR:
            write_retrieval(folder)
        elif key == COCO:
            write_retrieval_parquet(folder)
        elif key == WINO:
            folder.mkdir(parents=True)
            pq.write_table(
                pa.Table.from_pylist(winogavil_rows(drawn)), folder / "a.parquet", row_group_size=3
            )
        else:
            write_classification(folder, key, number, drawn)
    return data


def save_to_disk(folder, rows):
    """As `datasets` does."""
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(rows)
    with pa.ipc.new_stream(str(folder / "data.arrow"), table.schema) as writer:
        writer.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))


def varied_model():
    """An untrained model gives all images nearly the same embedding. The towers of this one are random maps of pixels
    and of bags of words, so that rankings differ. `calls` counts the images and texts that it encoded."""
    names = [name for task in make_tasks(WORLD) for name in task.class_names]
    texts = [text for index in range(3 * NUM_IMAGES) for text in captions_of(index)[1]]
    model = create(
        "nano",
        train_word_level(
            ["here is an orange circle going up in a picture of", *names, *texts], context_length=16
        ),
        seed=0,
    ).eval()
    generator = torch.Generator().manual_seed(2)
    dim, size = model.config.embed_dim, model.config.image.preprocessing.size
    pixel_map = torch.randn(2, 3 * size * size, dim, generator=generator)
    word_map = torch.randn(2, model.config.text.tokenizer.vocab_size, dim, generator=generator)
    model.calls = {"images": 0, "texts": 0}

    def gaussian(mean, spread):
        mean = torch.nn.functional.normalize(mean - mean.mean(-1, keepdim=True), dim=-1)
        return Gaussian(mean, -4.0 + torch.tanh(spread))

    def encode_image(pixels):
        model.calls["images"] += len(pixels)
        flat = (pixels - pixels.mean((2, 3), keepdim=True)).flatten(1)
        return gaussian(flat @ pixel_map[0], 0.05 * flat @ pixel_map[1])

    def encode_text(ids):
        model.calls["texts"] += len(ids)
        bags = torch.nn.functional.one_hot(ids, word_map.shape[1]).sum(1).float()
        bags[:, 0] = 0.0  # padding
        return gaussian(bags @ word_map[0], 0.3 * bags @ word_map[1])

    model.encode_image, model.encode_text = encode_image, encode_text
    return model
