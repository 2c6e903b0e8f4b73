# prolip as a command in a container:
#
#     docker build -t prolip .
#     docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" prolip embed photos --modality image \
#         --out embeddings --model photos-small
#
# On Linux, PyPI's torch brings some gigabytes of CUDA libraries. For a CPU-only image, name the package index that has
# torch's CPU builds: --build-arg TORCH_INDEX=URL.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
WORKDIR /source
RUN pip install --no-cache-dir build
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m build --wheel --outdir /wheels

FROM python:${PYTHON}-slim
ARG EXTRAS=report,data,search,onnx,photos
ARG TORCH_INDEX=
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheels /tmp/wheels
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch \
 && pip install --no-cache-dir --constraint /tmp/constraints.txt "$(ls /tmp/wheels/*.whl)[${EXTRAS}]" \
 && rm -rf /tmp/wheels \
 && useradd --create-home prolip
USER prolip
# caches have a place, whoever --user names
ENV HOME=/tmp
WORKDIR /work
ENTRYPOINT ["prolip"]
CMD ["--help"]
