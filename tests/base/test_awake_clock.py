"""A clock that stands still while it is not looked at."""

from alphazero.base.awake_clock import TURN_S, AwakeClock


def test_time_passes_while_it_is_looked_at_and_a_long_sleep_counts_as_one_turn():
    seconds = [100.0]
    clock = AwakeClock(lambda: seconds[0])
    begin = clock()
    for _ in range(10):
        seconds[0] += 1.0
        clock()
    assert clock() - begin == 10.0
    seconds[0] += 3600.0
    assert clock() - begin == 10.0 + TURN_S
    seconds[0] += 1.0
    assert clock() - begin == 11.0 + TURN_S
