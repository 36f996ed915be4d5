"""Make sample logs: python3 make_logs.py DIRECTORY [HOSTS [LINES]]; always the same."""

import gzip
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

STATUS = (200,) * 90 + (304,) * 5 + (404,) * 3 + (500, 503)


def main() -> None:
    directory = Path(sys.argv[1])
    hosts, lines = (
        int(word) for word in [*sys.argv[2:], *("3", "5000")[len(sys.argv) - 2 :]]
    )
    for number in range(1, hosts + 1):
        host = f"web{number}"
        (directory / host).mkdir(parents=True, exist_ok=True)
        with gzip.open(directory / host / f"{host}-access.log.gz", "wt") as file:
            file.writelines(f"{line}\n" for line in log(random.Random(number), lines))


def log(dice: random.Random, lines: int):
    start = datetime(2026, 1, 2, tzinfo=UTC)
    for number in range(lines):
        at = start + timedelta(seconds=number * 86400 // lines)
        status = dice.choice(STATUS)
        url = f"/{dice.choice(('', 'cart', 'search', 'item/7', 'login'))}"
        yield (
            f"10.0.{dice.randrange(4)}.{dice.randrange(256)} - - "
            f'[{at:%d/%b/%Y:%H:%M:%S} +0000] "GET {url} HTTP/1.1" {status} '
            f'{dice.randrange(200, 9000)} "-" "Mozilla/5.0 \\"sample\\""'
        )
    yield "this line is no log line"


if __name__ == "__main__":
    main()
