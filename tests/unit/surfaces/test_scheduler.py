"""The simulated engine's timing: long prompts delay everyone, batches share steps, caches save exactly what repeats."""

import pytest

from examples.engine.scheduler import BLOCK, Job, PrefixCache, Scheduler, Speed

pytestmark = pytest.mark.surfaces

SPEED = Speed(prefill_s=0.001, decode_s=0.010, decode_token_s=0.001, batch_tokens=100, slots=2)


def times(scheduler: Scheduler, job: Job) -> list[float]:
    """When the job gets each of its tokens, in seconds from now."""
    now, found = 0.0, []
    while job.output_left:
        seconds, producing = scheduler.step()
        now += seconds
        found += [now] * (job in producing)
    return found


def test_a_prompt_costs_its_tokens_and_every_further_token_a_step() -> None:
    scheduler, job = Scheduler(SPEED), Job(prompt_left=250, output_left=3)
    scheduler.submit(job)
    assert times(scheduler, job) == pytest.approx([0.250, 0.261, 0.272])
    assert scheduler.idle


def test_a_long_prompt_delays_the_tokens_of_who_is_answered_already() -> None:
    scheduler, early = Scheduler(SPEED), Job(prompt_left=10, output_left=4)
    scheduler.submit(early)
    scheduler.step()
    scheduler.submit(Job(prompt_left=100, output_left=1))
    seconds, producing = scheduler.step()
    assert early in producing
    assert seconds == pytest.approx(0.100 + 0.011)


def test_who_finds_all_slots_taken_waits() -> None:
    scheduler = Scheduler(SPEED)
    jobs = [Job(prompt_left=1, output_left=2) for _ in range(3)]
    for job in jobs:
        scheduler.submit(job)
    scheduler.step()
    assert [job.given for job in jobs] == [1, 1, 0]


def test_a_cancelled_job_costs_nothing_more() -> None:
    scheduler, running, waiting = Scheduler(SPEED), Job(50, 5), Job(50, 5)
    scheduler.submit(running)
    scheduler.step()
    scheduler.submit(waiting)
    scheduler.cancel(running)
    scheduler.cancel(waiting)
    assert scheduler.idle


def test_a_cache_knows_whole_blocks_of_what_it_has_seen_and_no_more() -> None:
    cache = PrefixCache(blocks=1000)
    prompt = [f"w{i}" for i in range(BLOCK * 3 + 5)]
    assert cache.cached_tokens(prompt) == 0
    assert cache.cached_tokens([*prompt, "and", "more"]) == BLOCK * 3
    assert cache.cached_tokens([*prompt[:BLOCK], *["other"] * BLOCK]) == BLOCK
    assert cache.cached_tokens(["other", *prompt]) == 0


def test_at_least_one_token_is_always_computed() -> None:
    cache = PrefixCache(blocks=1000)
    prompt = ["w"] * (BLOCK * 2)
    cache.cached_tokens(prompt)
    assert cache.cached_tokens(prompt) == BLOCK * 2 - 1


def test_what_was_not_used_for_longest_is_forgotten_first() -> None:
    cache = PrefixCache(blocks=2)
    first, second, third = (["a"] * BLOCK, ["b"] * BLOCK, ["c"] * BLOCK)
    for prompt in (first, second, first, third):
        cache.cached_tokens([*prompt, "x"])
    assert cache.cached_tokens([*first, "y"]) == BLOCK
    assert cache.cached_tokens([*second, "y"]) == 0
