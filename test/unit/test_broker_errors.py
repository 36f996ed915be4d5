"""Every error that Disque, RedisRQ and bananaq answer is in a transcript, or there is a
reason why not."""

from pathlib import Path

import pytest

TRANSCRIPTS = Path(__file__).parents[1] / "process" / "golden"
TEXTS = """
ERR unknown command
ERR LOADJOB is a special command only processed from AOF
ERR wrong number of arguments for
BADID Invalid Job ID format.
ERR REPLICATE must be between 1 and 65535
ERR TTL must be a number > 0
ERR RETRY time must be a non negative number
ERR DELAY time must be a non negative number
ERR MAXLEN must be a positive number
ERR syntax error
ERR timeout is not an integer or out of range
ERR timeout is negative
ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)
ERR The specified DELAY is greater than TTL. Job refused since would never be delivered
NOREPL Not enough reachable nodes for the requested replication level
NOREPL Not enough reachable nodes for the requested replication level, since I'm unable
MAXLEN Queue is already longer than the specified MAXLEN count
PAUSED Queue paused in input, try later
ERR COUNT must be a number greater than zero
LEAVING This node is leaving the cluster, please connect to a different one
NOJOB Job not known in the context of this node.
TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the next
ERR value is not an integer or out of range
ERR invalid cursor or option name
ERR Invalid job state name
ERR Invalid REPLY type, try ID or ALL
ERR Invalid TCP port specified:
ERR Invalid node address specified:
ERR Invalid node identifier
ERR Unknown node
ERR I tried hard but I can't forget myself...
ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'
ERR Wrong CLUSTER subcommand or number of arguments
ERR Unsupported CONFIG parameter:
ERR Invalid argument
ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE
ERR Wrong number of arguments for CONFIG
ERR Unknown DEBUG subcommand or wrong number of arguments for
ERR invalid password
ERR Client sent AUTH, but no password is set
ERR Unknown DISQUE subcommand
EMPTYKEY
usage: RQ.POP
usage: RQ.RECOVER
usage: RQ.INSPECT
ERR invalid ID string
OOM command not allowed when used memory > 'maxmemory'.
"""
ELSEWHERE = {
    "ERR Protocol error:": "closes the connection: test_broker_resp",
    "NOAUTH Authentication required.": "needs a second user: test_broker_admin",
    "MISCONF Errors writing to the AOF file:": "needs a full disk: test_broker_full_disk",
    "ERR The server is running without a config file": "each node has one",
    "LOADING": "the port answers when all is read",
    "ERR max number of clients reached": "closes the connection: test_broker_tls",
    "NOREPL Timeout reached before replicating": "needs other nodes",
    "NOREPL job removed (expired?)": "needs other nodes",
    "ACKED": "a job alone on a node is gone when it is acknowledged",
    "ERR Errors trying to SHUTDOWN. Check logs.": "all is durable before: none can fail",
    "WRONGTYPE": "the dialects have names of their own: no key has another type",
    "ERR Unrecognized option given": "of Disque of 2020: that of 2016 is answered",
    "ERR FROM is mandatory": "of Disque of 2020: that of 2016 is answered",
    "ERR Invalid count": "of Disque of 2020: that of 2016 is answered",
    'ERR unknown cmd "X"': "of bananaq: Disque's is answered",
    "ERR insufficient arguments": "of bananaq: Disque's is answered",
}


def _answers():
    lines = [
        line.strip()
        for path in TRANSCRIPTS.glob("*.txt")
        for line in path.read_text().splitlines()
    ]
    return [line[1:] for line in lines if line.startswith("-")]


@pytest.mark.parametrize("text", TEXTS.strip().splitlines())
def test_an_error_is_played(text):
    assert any(answer.startswith(text) for answer in _answers())


def test_no_error_is_both_played_and_excused():
    excused = tuple(ELSEWHERE)
    assert not [answer for answer in _answers() if answer.startswith(excused)]
