"""Processes for tests, forked from a server that has imported the trainer: importing takes seconds."""

import multiprocessing

import torch.multiprocessing as mp

PRELOAD = ["prolip.training.trainer", "prolip.training.recipes.nano", "pytest", "torch._dynamo"]


def clean_context():
    """Start method whose processes hold nothing of this process (no threads, no patches) but start at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


def start_ranks(work, args, ranks, *, join=True):
    """work(rank, *args) in so many processes; an error in one is an error here."""
    clean_context()
    return mp.start_processes(work, args, nprocs=ranks, join=join, start_method="forkserver")
