"""Routing rules: data, the first that matches, and the ancestor's files taken over."""

import random

import pytest

from rq.builtin.router import ancestor, rules
from rq.builtin.router.rules import Action
from rq.errors import BadConfig

RELAY = {"name": "r", "dest": "^x$", "action": "relay", "route": ["h"]}


def parse(*found):
    return rules.parse({"rules": list(found)})


def refused(*found):
    with pytest.raises(BadConfig) as caught:
        parse(*found)
    return str(caught.value)


def test_the_first_rule_that_matches_is_meant():
    found = parse(
        {"name": "a", "src": "bob", "dest": "^x", "action": "done"},
        {"name": "b", "src": "bob", "action": "err"},
        {"name": "c", "param2": "4[0-9]", "action": "done"},
    )
    assert found.first({"src": "bobby", "dest": "xy"}).name == "a"
    assert found.first({"src": "bob", "dest": "y"}).name == "b"
    assert found.first({"dest": "x"}).name == "default"
    assert found.first({"param2": 42}).name == "c"
    assert found.first({"param2": {"n": 47}}).name == "c"


def test_without_a_default_what_matches_nothing_is_an_error_and_noted():
    last = parse(RELAY).last
    assert (last.action, last.log) == (Action.ERR, True)


def test_of_several_defaults_the_last_counts():
    found = parse(
        {"name": "default", "action": "done"},
        RELAY,
        {"name": "default", "action": "relay", "route": ["z"]},
    )
    assert [one.name for one in found.rules] == ["r"]
    assert found.last.route == (("z",),)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"dests": "x"}, "unknown key 'dests'; did you mean 'dest'?"),
        ({"action": "drop"}, "action 'drop' is not one of relay, balance, done, err"),
        ({"action": None}, "action None is not one of"),
        ({"action": "done"}, "action done has no route"),
        ({"route": []}, "action relay needs a route"),
        ({"route": "h"}, "route is not a list of hosts"),
        ({"route": ["a b"]}, "route: 'a b' is not a host"),
        ({"route": ["h/q/x"]}, "is not a host"),
        ({"route": [[]]}, "is not a host, or a list of them"),
        ({"dest": "("}, "dest: '(' is no pattern"),
        ({"dest": 5}, "dest is not text"),
        ({"delay": -1}, "delay -1 is not a whole number of seconds"),
        ({"delay": True}, "delay True is not a whole number of seconds"),
        ({"log": "yes"}, "log 'yes' is not true or false"),
        ({"name": 5}, "name is not text"),
        ({"name": "default"}, "the default rule matches everything"),
    ],
)
def test_what_is_wrong_is_told_with_its_rule(change, text):
    told = refused({**RELAY, **change})
    assert told.startswith("rule 1")
    assert text in told


def test_a_rule_must_match_something():
    assert "it matches nothing" in refused({"name": "a", "action": "done"})
    assert "it is not a JSON object" in refused("x")
    with pytest.raises(BadConfig, match="the file is not"):
        rules.parse({})


def test_rules_are_written_as_they_were_read():
    found = parse(
        {**RELAY, "delay": 3, "log": True, "route": ["a", ["b", "c:80"]]},
        {"name": "default", "action": "done"},
    )
    assert rules.parse(found.to_json()) == found


def test_a_copy_goes_to_each_host_and_to_one_of_several():
    [rule] = parse({**RELAY, "route": ["a", ["b", "c"]]}).rules
    picked = [rules.destinations(rule, "x", lambda some: some[-1])]
    assert picked == [["http://a:3333/q/x", "http://c:3333/q/x"]]


def test_balance_picks_one_of_all():
    [rule] = parse({**RELAY, "action": "balance", "route": ["a", ["b", "c"]]}).rules
    chance = random.Random(1)
    picked = {rules.destinations(rule, "x", chance.choice)[0] for _ in range(50)}
    assert picked == {f"http://{host}:3333/q/x" for host in "abc"}


@pytest.mark.parametrize(
    ("host", "dest", "url"),
    [
        ("h", "x", "http://h:3333/q/x"),
        ("h:80", "x", "http://h:80/q/x"),
        ("h", "http://old:3333/q/x", "http://h:3333/q/x"),
        ("h", "https://old/rq/q/x/1", "http://h:3333/q/x/1"),
        ("[::1]", "x", "http://[::1]:3333/q/x"),
        ("[::1]:80", "x", "http://[::1]:80/q/x"),
        ("https://h/rq/q/y", "x", "https://h/rq/q/y"),
    ],
)
def test_the_host_takes_the_place_of_the_old_one(host, dest, url):
    assert rules.address(host, dest) == url


# ---- the ancestor's files

RUBY = r"""
# where things go
rule 'to the farm'          # a name
  src /^web\d+\z/i
  dest %r{/q/thumbs}
  action :relay
  route 'farm1', ["farm2", 'farm3:3333']
  delay 5

rule :quiet
dest /^(?<name>\h+)$/
action :done
log true
rule "nothing's # wrong"
src /a\/b/
action(:balance)
route('http://h:1/q/x')

rule 'default'
action :err"""


def test_the_ancestors_rules_are_taken_over():
    found = ancestor.parse(RUBY)
    farm, quiet, odd = found.rules
    assert farm.name == "to the farm"
    assert farm.match["src"].search("WEB12")
    assert not farm.match["src"].search("web12\n")
    assert farm.match["dest"].search("http://h/q/thumbs")
    assert farm.route == (("farm1",), ("farm2", "farm3:3333"))
    assert farm.delay == 5
    assert (quiet.name, quiet.log, quiet.action) == ("quiet", True, Action.DONE)
    assert quiet.match["dest"].search("x\n0aF\ny")
    assert odd.name == "nothing's # wrong"
    assert odd.match["src"].search("a/b")
    assert (odd.action, odd.route) == (Action.BALANCE, (("http://h:1/q/x",),))
    assert found.last.action is Action.ERR
    assert rules.parse(found.to_json()) == found


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("src /a/", "line 1: 'src /a/' is not within a rule"),
        ("rule 'a'\nsystem('rm -rf /')", "line 2: "),
        ("rule 'a'\nsrc /#{`id`}/", "cannot be converted"),
        ('rule "#{exit}"', "is neither a text nor a list"),
        ("rule 'a'\nsrc 'x'", "is not a pattern between slashes"),
        ("rule 'a'\nsrc /[[:alpha:]]/", "[[: in "),
        ("rule 'a'\nsrc /(/\naction :done", "line 1: rule 1 (a): src: "),
        ("rule 'a'\nsrc /a/\naction :done\nroute 'b' 'c'", "is not a list of texts"),
        ("rule 'a'\nsrc /a/\naction :relay\nroute HOSTS", "neither a text nor a list"),
        ("rule 'a'\nsrc /a/\naction :relay\nroute [['b']]", "is not a host"),
        ("rule 'a'\nsrc /a/\ndelay 1 + 1", "'1 + 1' is not a whole number of seconds"),
        ("rule 'a'\nsrc /a/; exit", "is not a pattern"),
        ("rule 'a'\nsrc /a/\nlog maybe", "is not true or false"),
        ("rule 'a', 'b'\nsrc /a/", "rule has one text"),
    ],
)
def test_what_is_no_rule_is_told_with_its_line_and_never_run(text, told):
    with pytest.raises(BadConfig) as caught:
        ancestor.parse(text)
    assert told in str(caught.value)
    assert str(caught.value).startswith("line ")


def test_an_empty_file_has_the_last_rule_only():
    assert ancestor.parse("\n# nothing\n") == rules.Rules(())


def test_a_line_of_the_ancestors_rules_ends_at_a_newline_alone():
    text = "rule 'a\u2028b\vc'\nsrc /x\u0085y/\ndest /./\naction :done\n"
    [rule] = ancestor.parse(text).rules
    assert rule.name == "a\u2028b\vc"
