"""Has more to compute than one worker does soon, until there are three; then nothing, until there is one again."""

import time

from distributed import Client, wait


def square(number: int) -> int:
    time.sleep(0.3)
    return number * number


client = Client(timeout=600)


def workers() -> int:
    return len(client.scheduler_info(n_workers=-1)["workers"])


while workers() != 1:
    time.sleep(0.2)
squares = []
while workers() < 3:
    if sum(not square.done() for square in squares) < 60:
        squares += client.map(square, range(len(squares), len(squares) + 60))
    time.sleep(0.2)
print("three workers compute", flush=True)
wait(squares)
assert client.gather(squares) == [number * number for number in range(len(squares))]
del squares
while workers() > 1:
    time.sleep(0.2)
print("one worker is left", flush=True)
client.close()
