"""Logins: roles of users, and that guesses slow down nobody but who guesses."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

import pytest

from rq.access import logins
from rq.access.logins import Guesses, Hashing, Levels, Logins
from rq.access.roles import Role
from rq.config import passwords
from rq.config.settings import RootConfig
from rq.errors import BadConfig, TooOften

NOW = 1000.0
RIGHT = passwords.make("right")


def config(**users):
    return RootConfig(basic_auth={"users": users or {"ann": RIGHT}})


def checked(known, *guess, now=NOW):
    """Return the name of who is let in, None for nobody, "later" for who must wait."""

    async def ask():
        try:
            user = await known.check(*guess, now)
        except TooOften:
            return "later"
        return user and user.name

    return asyncio.run(ask())


# ---- the setting


def test_a_user_is_an_admin_unless_the_config_says_otherwise():
    known = logins.users(
        config(
            ann=RIGHT,
            bob={"password": RIGHT, "role": "operator", "queues": ["mail-*"]},
            cid={"password": "plain"},
        )
    )
    assert known["ann"].principal.role is Role.ADMIN
    assert known["bob"].principal.role is Role.OPERATOR
    assert known["bob"].principal.sees("mail-out")
    assert not known["bob"].principal.sees("wages")
    assert known["cid"].role is Role.ADMIN
    assert logins.users(RootConfig()) == {}


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"role": "operator"}, "the password of ann is empty"),
        ({"password": RIGHT, "role": "king"}, "'king', the role of ann"),
        ({"password": RIGHT, "role": ["admin"]}, "the role of ann"),
        ({"password": RIGHT, "queues": "mail"}, "the queues of ann"),
        ({"password": RIGHT, "queues": [""]}, "the queues of ann"),
        ({"password": RIGHT, "roles": "admin"}, "'roles' of ann is not one of"),
        ({"password": ["x"]}, "the password of ann is not text"),
        (None, "the password of ann is not text"),
        (True, "the password of ann is not text"),
        ("scrypt:1:2", "the hash of ann is damaged"),
    ],
)
def test_a_user_that_cannot_be_is_one_sentence(user, said):
    with pytest.raises(BadConfig, match=said):
        logins.users(config(ann=user))


@pytest.mark.parametrize("name", ["", "a:b", "a\nb", "token:ci", "ann/blue", "a" * 201])
def test_a_users_name_is_never_that_of_a_token_or_of_a_users_worker(name):
    with pytest.raises(BadConfig, match="cannot be a user's name"):
        logins.users(config(**{name: RIGHT}))


def test_the_proof_of_a_session_changes_with_the_password():
    known = logins.users(config(ann=RIGHT, bob=RIGHT))
    changed = logins.users(config(ann=passwords.make("right"), bob=RIGHT))
    assert known["ann"].proof != changed["ann"].proof
    assert known["bob"].proof == changed["bob"].proof != known["ann"].proof


# ---- guesses


def test_a_right_login_is_let_in_and_a_wrong_one_is_not():
    known = Logins(logins.users(config()))
    assert checked(known, "ann", "right", "192.0.2.1") == "ann"
    assert checked(known, "ann", "right", "192.0.2.1") == "ann"
    assert checked(known, "ann", "wrong", "192.0.2.1") is None
    assert checked(known, "nobody", "right", "192.0.2.1") is None
    assert checked(known, "", "", "") is None


def test_an_address_that_guesses_must_wait_and_no_other():
    known = Logins(logins.users(config()))
    for number in range(logins.AT_ONCE):
        assert checked(known, "ann", f"wrong {number}", "192.0.2.1") is None
    assert checked(known, "ann", "right", "192.0.2.1") == "later"
    assert checked(known, "bob", "x", "192.0.2.1") == "later"
    assert checked(known, "ann", "right", "192.0.2.2") == "ann"
    later = NOW + logins.PAUSE
    assert checked(known, "ann", "wrong", "192.0.2.1", now=later) is None
    assert checked(known, "ann", "wrong too", "192.0.2.1", now=later) == "later"


def test_a_login_that_was_right_once_never_waits_even_where_others_guess():
    known = Logins(logins.users(config()))
    assert checked(known, "ann", "right", "192.0.2.1") == "ann"
    for number in range(logins.AT_ONCE + 1):
        checked(known, "ann", f"wrong {number}", "192.0.2.1")
    assert checked(known, "ann", "wrong", "192.0.2.1") == "later"
    assert checked(known, "ann", "right", "192.0.2.1") == "ann"


def test_the_same_wrong_password_again_is_another_guess():
    known = Logins(logins.users(config()))
    for _ in range(logins.AT_ONCE):
        assert checked(known, "ann", "wrong", "192.0.2.1") is None
    assert checked(known, "ann", "wrong", "192.0.2.1") == "later"


def test_a_login_that_is_right_is_no_guess_of_its_address():
    people = {f"user{number}": RIGHT for number in range(logins.AT_ONCE)}
    known = Logins(logins.users(config(**people)))
    for name in people:
        assert checked(known, name, "right", "192.0.2.1") == name
    for number in range(logins.AT_ONCE):
        assert checked(known, "ann", f"wrong {number}", "192.0.2.1") is None
    assert checked(known, "ann", "wrong", "192.0.2.1") == "later"


def test_where_a_login_was_right_comes_before_where_none_was_yet():
    people = dict.fromkeys(("ann", "bob"), RIGHT)
    known = Logins(logins.users(config(**people)))
    assert checked(known, "ann", "right", "192.0.2.1") == "ann"
    ended = []

    async def guess(password, address):
        await known.check("bob", password, address, NOW)
        ended.append(address)

    async def ask():
        async with asyncio.TaskGroup() as group:
            for password, number in (("a", 9), ("b", 1), ("c", 2)):
                group.create_task(guess(password, f"192.0.2.{number}"))
                await asyncio.sleep(0)

    asyncio.run(ask())
    assert ended == ["192.0.2.9", "192.0.2.1", "192.0.2.2"]


def test_all_addresses_of_one_network_are_one_guesser():
    known = Logins(logins.users(config()))
    for number in range(logins.AT_ONCE):
        checked(known, "ann", f"wrong {number}", f"2001:db8::{number + 1:x}")
    assert checked(known, "ann", "x", "2001:db8::ffff") == "later"
    assert checked(known, "ann", "right", "2001:db8:0:1::1") == "ann"


def test_a_name_that_many_guess_at_leaves_each_one_guess_and_the_right_one_enters():
    known = Guesses()
    for number in range(logins.OF_A_NAME):
        known.take(f"10.0.0.{number}", "ann", NOW)
    known.take("10.9.9.9", "ann", NOW)
    with pytest.raises(TooOften) as refusal:
        known.take("10.9.9.9", "ann", NOW)
    assert refusal.value.wait == logins.PAUSE
    known.take("10.9.9.9", "bob", NOW + logins.PAUSE)
    known.take("10.9.9.9", "bob", NOW + logins.PAUSE)


def test_a_guess_that_was_right_is_given_back_and_no_other():
    known = Guesses()
    for _ in range(logins.AT_ONCE):
        known.take("10.0.0.1", "ann", NOW)
    known.give_back("10.0.0.1", "ann", NOW)
    known.take("10.0.0.1", "ann", NOW)
    with pytest.raises(TooOften) as refusal:
        known.take("10.0.0.1", "ann", NOW)
    assert refusal.value.wait == logins.PAUSE
    for number in range(logins.OF_A_NAME + 1 - logins.AT_ONCE):
        known.take(f"10.0.1.{number}", "ann", NOW)
    known.give_back("10.0.1.0", "ann", NOW)
    known.take("10.9.9.9", "ann", NOW)
    with pytest.raises(TooOften):  # the name is attacked still: one guess of each
        known.take("10.9.9.9", "ann", NOW)


def test_who_came_last_is_remembered_and_who_came_first_forgotten():
    latest = OrderedDict()
    for number in range(logins._REMEMBERED):
        logins._remember(latest, number, None)
    logins._remember(latest, 0, "again")
    logins._remember(latest, "new", None)
    assert len(latest) == logins._REMEMBERED
    assert (latest.get(0), 1 in latest, 2 in latest) == ("again", False, True)


def test_memory_is_bounded_whatever_is_guessed():
    known = Levels()
    for number in range(logins.MOST + 500):
        known.add(number, 1, NOW)
    assert len(known) == logins.MOST
    assert known.level(499, NOW) == 0, "the oldest is forgotten"
    assert known.level(500, NOW) == known.level(logins.MOST + 499, NOW) == 1
    for number in range(logins.MOST + 500):
        known.add(number, -1, NOW)
    assert len(known) == 0


def test_a_program_that_opens_many_connections_is_one_guess():
    known = Logins(logins.users(config()))

    async def ask():
        every = [known.check("ann", "right", "192.0.2.1", NOW) for _ in range(100)]
        return await asyncio.gather(*every)

    assert {user.name for user in asyncio.run(ask())} == {"ann"}


def test_whoever_leaves_while_a_password_is_compared_harms_nobody():
    known = Logins(logins.users(config()))

    async def ask():
        leaving = [
            asyncio.create_task(known.check("ann", f"{n}", f"10.0.0.{n}", NOW))
            for n in range(5)
        ]
        await asyncio.sleep(0)
        for task in leaving:
            task.cancel()
        user = await known.check("ann", "right", "192.0.2.2", NOW)
        return (
            user.name,
            [not task.done() or task.cancelled() for task in leaving],
            known,
        )

    name, gone, _ = asyncio.run(ask())
    assert name == "ann"
    assert all(gone)


def test_of_those_who_wait_the_least_suspicious_comes_next_and_the_worst_is_sent_away():
    ended = []

    async def guess(on, number, suspicion):
        try:
            await on.fits("x", RIGHT, suspicion)
            ended.append(number)
        except TooOften:
            ended.append(f"{number} sent away")

    async def ask():
        on = Hashing()
        tasks = [asyncio.create_task(guess(on, -1, 0.0))]  # is compared at once
        for number in range(logins.WAITING):
            tasks.append(asyncio.create_task(guess(on, number, 9.0 - number / 100)))
        tasks.append(asyncio.create_task(guess(on, "right", 0.0)))
        await asyncio.gather(*tasks)

    asyncio.run(ask())
    assert "0 sent away" in ended
    ended.remove("0 sent away")
    assert ended[:3] == [-1, "right", logins.WAITING - 1]
    assert len(ended) == logins.WAITING + 1


def test_four_hundred_who_guess_at_once_are_nearly_all_sent_away():
    known = Logins(logins.users(config()))

    async def one(password, address):
        try:
            return await known.check("ann", password, address, NOW)
        except TooOften:
            return "later"

    async def ask():
        wrong = [
            asyncio.create_task(one(f"wrong {n}", "192.0.2.1")) for n in range(400)
        ]
        right = asyncio.create_task(one("right", "192.0.2.2"))
        await right
        waiting = sum(not task.done() for task in wrong)
        return right.result().name, waiting, await asyncio.gather(*wrong)

    name, waiting, answers = asyncio.run(ask())
    assert name == "ann"
    assert waiting >= logins.AT_ONCE - 2, "the right one came first"
    assert answers.count(None) == logins.AT_ONCE
    assert answers.count("later") == 400 - logins.AT_ONCE
