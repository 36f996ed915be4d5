"""Every command of the broker answers as its transcript says, in RESP2 and in RESP3."""

from pathlib import Path

import pytest
from harness.broker import broker_in
from harness.extent import rotated
from harness.golden import Player, commands_of

from rq.broker.dialects import TABLE

pytestmark = pytest.mark.process
GOLDEN = {path.stem: path for path in Path(__file__).parent.glob("golden/*.txt")}


@pytest.mark.parametrize("version", rotated([2, 3]))
@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_answers_are_as_the_transcript_says(tmp_path, name, version):
    with broker_in(tmp_path / "node") as broker:
        broker.start()
        player = Player(broker, version)
        try:
            player.play(GOLDEN[name])
        finally:
            player.close()


def test_every_command_of_a_dialect_is_played():
    assert {name.decode() for name in TABLE} <= commands_of(GOLDEN)
