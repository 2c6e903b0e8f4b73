"""Requests to stop are noted; what one rank knows, all know; an error on one rank ends all of them."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist

from prolip import distributed
from prolip.training.rank_sync import (
    PeerError,
    any_rank,
    broadcast_from_rank_zero,
    catch_stop_signals,
    on_rank_zero,
    raise_on_any_rank,
    raise_with_peers,
)
from tests.processes import start_ranks

HEARD = (signal.SIGTERM, signal.SIGINT)


def handlers():
    return [signal.getsignal(number) for number in HEARD]


def test_sigterm_is_noted_and_the_handlers_come_back():
    before = handlers()
    with catch_stop_signals() as stop:
        assert not stop
        assert handlers() != before
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop
            assert stop.signal is signal.SIGTERM
    assert handlers() == before
    with catch_stop_signals() as stop:
        assert not stop, "an older request is not a new one"
    with pytest.raises(ZeroDivisionError), catch_stop_signals():
        raise ZeroDivisionError
    assert handlers() == before


def test_the_first_interrupt_is_noted_the_second_one_interrupts():
    before = handlers()

    def twice():
        with catch_stop_signals() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop
            assert stop.signal is signal.SIGINT
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(5)

    with pytest.raises(KeyboardInterrupt):
        twice()
    assert handlers() == before


def test_elsewhere_than_in_the_main_thread_nothing_is_heard_and_nothing_breaks():
    before = handlers()

    def work():
        with catch_stop_signals() as stop:
            return bool(stop), handlers()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result() == (False, before)


def fail(text="no such sample"):
    raise LookupError(text)


def test_one_process_agrees_with_itself():
    assert any_rank(True, False) == (True, False)
    assert any_rank() == ()
    assert raise_on_any_rank(lambda: 5) == 5
    done = []
    on_rank_zero(lambda: done.append(1))
    assert done == [1]
    for work in (
        lambda: raise_on_any_rank(fail),
        lambda: on_rank_zero(fail),
        lambda: raise_with_peers(LookupError("no such")),
    ):
        with pytest.raises(LookupError, match="no such"):
            work()


def test_what_is_no_error_is_not_held_back():
    with pytest.raises(KeyboardInterrupt):
        raise_on_any_rank(lambda: signal.default_int_handler(2, None))


def check_flags(rank):
    assert any_rank(rank == 1, rank == 0, False, True) == (True, True, False, True)
    assert all(type(flag) is bool for flag in any_rank(rank == 1, False))
    with catch_stop_signals() as stop:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        assert bool(stop) is (rank == 1)
        assert any_rank(bool(stop)) == (True,)


def check_errors(rank):
    assert raise_on_any_rank(lambda: rank + 5) == rank + 5, "everyone's own result"
    kind, text = (
        (LookupError, "^no such sample$") if rank == 1 else (PeerError, "rank 1 failed: LookupError: no such")
    )
    with pytest.raises(kind, match=text):
        raise_on_any_rank(lambda: fail() if rank == 1 else None)
    with pytest.raises(LookupError, match=f"own {rank}"):  # both fail: each with its own
        raise_on_any_rank(lambda: fail(f"own {rank}"))


def check_first(rank):
    done = []
    on_rank_zero(lambda: done.append(distributed.rank()))
    assert done == ([0] if rank == 0 else [])
    kind, text = (
        (LookupError, "^no such sample$") if rank == 0 else (PeerError, "rank 0 failed: LookupError: no such")
    )
    with pytest.raises(kind, match=text):
        on_rank_zero(fail)


def run_rank(rank, init):
    """One process: all checks, then an orderly end."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=2)
    check_flags(rank)
    check_errors(rank)
    check_first(rank)
    assert any_rank(False) == (False,), "still together"
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # as in test_distributed


def test_two_ranks_stop_fail_and_go_on_together(tmp_path):
    start_ranks(run_rank, (f"file://{tmp_path}/store",), 2)


def test_a_lost_terminal_is_noted_but_not_if_nohup_says_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    try:
        with catch_stop_signals() as request:
            os.kill(os.getpid(), signal.SIGHUP)
            assert request.signal == signal.SIGHUP
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with catch_stop_signals() as request:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not request
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_one_process_has_its_own_result():
    assert broadcast_from_rank_zero(lambda: "found") == "found"
    with pytest.raises(OSError, match="gone"):
        broadcast_from_rank_zero(lambda: (_ for _ in ()).throw(OSError("gone")))
