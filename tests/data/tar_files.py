"""Tars for tests, written by `tarfile`, and read by it with webdataset's rules for what a sample is."""

import io
import itertools
import re
import tarfile

PNG = b"\x89PNG, as far as a source can tell"


def member(name, content=b"", **fields):
    """(TarInfo, content) of a member of a tar; `fields` are set on the TarInfo."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def tar_bytes(files, format=tarfile.PAX_FORMAT):
    """The bytes of a tar; `files` are pairs (name, content), or what `member` returns."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as tar:
        for pair in files:
            info, content = member(*pair) if isinstance(pair[0], str) else pair
            tar.addfile(info, io.BytesIO(content))
    return file.getvalue()


def pairs(count, start=0):
    """The files, as (name, content), of `count` samples with a picture and a caption each, numbered from `start`."""
    numbers = range(start, start + count)
    return [
        file
        for n in numbers
        for file in ((f"{n:05d}.jpg", PNG + bytes([n % 256])), (f"{n:05d}.txt", b"caption %d" % n))
    ]


def write_tar(path, files, **options):
    """Write `tar_bytes(files, **options)` to a path, and return it as a str."""
    path.write_bytes(tar_bytes(files, **options))
    return str(path)


def samples_by_tarfile(content):
    """(key, [(extension, content), ...]) of each sample of a whole tar, given as bytes."""
    members = []
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        for info in tar:
            match = re.match(r"^((?:.*/|)[^.]+)[.]([^/]+)$", info.name, re.DOTALL)
            if info.isreg() and match and not re.match(r"[.]|__[^.]*__[.]", info.name.split("/")[-1]):
                members.append((match[1], match[2].lower(), tar.extractfile(info).read()))
    return [(key, [file[1:] for file in files]) for key, files in itertools.groupby(members, lambda m: m[0])]
