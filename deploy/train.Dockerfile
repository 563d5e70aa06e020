# An image for pretraining and fine-tuning. Runs are written to /work; a stopped command goes on when it is given again.
#
#     docker build -f deploy/train.Dockerfile -t osbert-train .
#     docker run --gpus all --shm-size 2g -v "$PWD:/work" osbert-train finetune classify --model MODEL --data rows.csv --out classifier
#
# TORCH_INDEX: another package index for torch, such as that of a CUDA version, as pytorch.org's page of installation names it.
FROM python:3.12-slim
ARG TORCH_INDEX=
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
RUN pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch>=2.11,<2.14"
COPY pyproject.toml README.md LICENSE /source/
COPY src /source/src
RUN pip install "/source[chinese,onnx,parquet,tensorboard,xlsx]"
RUN useradd --uid 10001 --create-home osbert
USER 10001
WORKDIR /work
ENV PYTHONUNBUFFERED=1
ENTRYPOINT ["osbert"]
CMD ["--help"]
