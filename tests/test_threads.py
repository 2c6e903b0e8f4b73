"""The choice of the number of threads, with steps whose duration is known."""

import os

import numpy as np
import pytest
import torch

from prolip import threads
from prolip.threads import BatchThreads, choose_threads, list_thread_counts, use_threads


@pytest.fixture
def clock(monkeypatch):
    """clock({1: 0.3, 2: 0.2}): a step takes so many seconds with so many threads; the steps are returned."""
    now, steps = [0.0], []
    monkeypatch.setattr(threads.time, "perf_counter", lambda: now[0])

    def make(seconds):
        def run_step():
            steps.append(torch.get_num_threads())
            now[0] += seconds[steps[-1]]

        return run_step, steps

    return make


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ({1: 0.3, 2: 0.16}, 2),
        ({1: 0.3, 2: 2.0}, 1),
        ({1: 0.100, 2: 0.096}, 1),
        ({1: 0.3, 2: 0.16, 4: 0.155}, 2),
        ({1: 0.01, 2: 0.02, 3: 0.005}, 3),
    ],
)
def test_the_least_number_that_is_about_as_fast_as_the_best_is_chosen(clock, seconds, chosen):
    before = torch.get_num_threads()
    run_step, _ = clock(seconds)
    choice = choose_threads(list(seconds), run_step)
    assert choice.threads == chosen
    assert choice.seconds == pytest.approx(seconds)
    assert torch.get_num_threads() == before


def test_numbers_take_turns(clock):
    run_step, steps = clock({1: 0.3, 2: 0.3})
    choose_threads([1, 2], run_step)
    assert steps == [2, 1, 2, 2, 1, 1, 2]


def test_a_stall_of_one_step_counts(clock, monkeypatch):
    """A mean, not a median: stalls at barriers are what is measured."""
    durations = iter([0.2, 0.2, 0.1, 0.1, 0.2, 0.2, 2.0])
    now = [0.0]
    monkeypatch.setattr(threads.time, "perf_counter", lambda: now[0])

    def run_step():
        now[0] += next(durations, 0.2)

    assert choose_threads([1, 2], run_step).threads == 1


@pytest.mark.parametrize("most", [1, 7, 8, 40])
def test_there_are_no_more_steps_than_allowed(clock, most):
    run_step, steps = clock({1: 1e-4, 2: 1e-4})
    choose_threads([1, 2], run_step, max_steps=most)
    assert len(steps) <= max(most, 1 + 2 * threads.ROUNDS)


def test_one_number_is_not_measured():
    assert choose_threads([3], lambda: pytest.fail("a step was taken")).threads == 3


def test_the_number_of_threads_is_restored_after_an_error():
    before = torch.get_num_threads()
    seen = []

    def fail():
        with use_threads(before + 1):
            seen.append(torch.get_num_threads())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert seen == [before + 1]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("cores", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_counts_are_powers_of_two_and_all_cores(cores, counts, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert list_thread_counts() == counts


def test_a_number_that_the_environment_sets_is_kept(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with use_threads(3):
        assert list_thread_counts() == [3]


def test_description_has_the_choice_and_the_times(clock):
    run_step, _ = clock({1: 0.3, 2: 2.0})
    assert choose_threads([1, 2], run_step).describe() == "threads: 1 (a step takes 0.3 s with 1, 2 s with 2)"


@pytest.mark.parametrize(("batches", "measured"), [(2, False), (3, True), (9, True)])
def test_inference_measures_once_and_restores(clock, monkeypatch, batches, measured):
    before = torch.get_num_threads()
    monkeypatch.setattr(threads, "list_thread_counts", lambda: [before, before + 1])
    run_step, steps = clock({before: 0.3, before + 1: 0.1})
    with BatchThreads(torch.device("cpu")) as choice:
        for _ in range(batches):
            choice.start_batch(run_step)
        assert torch.get_num_threads() == before + measured
    assert torch.get_num_threads() == before
    assert len(steps) == measured * (1 + 2 * threads.ROUNDS)


def test_inference_on_a_gpu_measures_nothing():
    with BatchThreads(torch.device("meta")) as choice:
        for _ in range(5):
            choice.start_batch(lambda: pytest.fail("measured"))


def test_embeddings_are_those_without_a_measurement(nano, monkeypatch):
    texts = [f"a red circle {'and a star ' * (i % 4)}" for i in range(20)]
    images = [np.full((40, 40, 3), 10 * i, dtype=np.uint8) for i in range(20)]
    embed = [lambda: nano.embed_texts(texts, batch_size=4), lambda: nano.embed_images(images, batch_size=4)]
    wanted = [run() for run in embed]
    monkeypatch.setattr(threads, "list_thread_counts", lambda: [1, 1])
    taken = []
    real = threads.choose_threads
    monkeypatch.setattr(threads, "choose_threads", lambda *args: taken.append(args) or real(*args))
    for run, z in zip(embed, wanted, strict=True):
        again = run()
        assert torch.equal(again.mean, z.mean)
        assert torch.equal(again.log_var, z.log_var)
    assert len(taken) == 2
