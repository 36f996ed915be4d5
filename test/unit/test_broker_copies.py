"""Jobs with copies on other nodes: made, queued once, and collected."""

from harness.broker_cluster import Cluster, Members

from rq.broker.cluster.messages import IsQueued, Mark, Need, SetAck
from rq.broker.desks.node import MOST_LETTERS
from rq.broker.state.bounds import MOST_NUMBER
from rq.broker.state.job import Buried

A, B, C = range(3)


def _spreads(cluster):
    return [len(node.jobs.spreads.by_job) for node in cluster.nodes]


def test_a_job_is_delivered_by_another_node_and_gone_everywhere_when_acknowledged():
    cluster = Cluster(3)
    job_id = cluster.add(A, "REPLICATE", 3, "RETRY", 5)
    assert cluster.holders(job_id) == [A, B, C]
    cluster.kill(A)
    assert cluster.get(B) is None
    cluster.pass_by(5.5)
    taken = [number for number in (B, C, B, C) if cluster.get(number) == job_id]
    assert len(taken) == 1
    assert cluster.ask(taken[0], "ACKJOB", job_id) == 1
    cluster.pass_by(3)
    assert cluster.get(B) is cluster.get(C) is None
    cluster.restart(A)
    cluster.pass_by(200)
    assert cluster.holders(job_id) == []
    assert _spreads(cluster) == [0, 0, 0]


def test_the_producer_waits_until_so_many_nodes_have_the_job():
    cluster = Cluster(3)
    members = cluster.nodes[A].peers
    cluster.kill(B)
    refused = cluster.ask(A, "ADDJOB", "q", "b", 0)
    assert refused.text.startswith("NOREPL Not enough reachable nodes")
    assert len(members.reachable) == 1
    job_id = cluster.add(A, "REPLICATE", 2)
    assert cluster.holders(job_id) == [A, C]


def test_a_producer_that_waits_too_long_gets_an_error_and_its_job_goes():
    cluster = Cluster(2)
    cluster.ask(B, "PAUSE", "q", "in")
    assert cluster.ask(A, "ADDJOB", "q", "b", 500, "REPLICATE", 2) is None
    cluster.pass_by(0.6)
    answer = cluster.answers[cluster.ids[A], 1]
    assert answer.text.startswith("NOREPL Timeout reached")
    assert [len(node.jobs.by_id) for node in cluster.nodes] == [0, 0]
    cluster.ask(B, "PAUSE", "q", "none")
    cluster.pass_by(1)
    assert cluster.get(A) is cluster.get(B) is None


def test_a_pause_for_all_nodes_is_one_on_all_and_so_is_its_end():
    cluster = Cluster(2)
    cluster.ask(B, "PAUSE", "q", "all")  # A has no such queue
    for how in ("none", "in", "out", "all", "none"):
        cluster.ask(A, "PAUSE", "q", how, "bcast")
        states = [cluster.ask(node, "PAUSE", "q", "state") for node in (A, B)]
        assert [state.text for state in states] == [how, how]


def test_a_job_that_nobody_takes_is_queued_on_one_node_only():
    cluster = Cluster(3)
    job_id = cluster.add(A, "RETRY", 2)
    cluster.pass_by(20)
    assert cluster.get(A) == job_id
    assert cluster.get(B) is cluster.get(C) is None


def test_a_job_that_is_not_acknowledged_comes_again_on_one_node():
    cluster = Cluster(3)
    job_id = cluster.add(A, "RETRY", 2)
    assert cluster.get(A) == job_id
    cluster.pass_by(3)
    taken = [number for number in (A, B, C) if cluster.get(number) == job_id]
    assert len(taken) == 1


def test_a_short_node_lets_others_keep_the_job_and_queue_it_at_most_once_too():
    cluster = Cluster(3)
    cluster.nodes[A].memory.limit = 0
    job_id = cluster.add(A, "REPLICATE", 1, "RETRY", 0)
    (holder,) = cluster.holders(job_id)
    assert holder != A
    assert cluster.get(holder) == job_id


def test_an_acknowledgement_on_a_node_without_the_job_reaches_those_that_have_it():
    cluster = Cluster(3)
    job_id = cluster.add(A, "REPLICATE", 1, "RETRY", 5)
    assert cluster.ask(B, "ACKJOB", job_id) == 0
    assert cluster.holders(job_id) == []
    cluster.pass_by(10)
    assert _spreads(cluster) == [0, 0, 0]


def test_a_copy_that_comes_after_its_job_is_over_is_not_kept():
    cluster = Cluster(3)
    cluster.kill(C)
    job_id = cluster.add(A, "REPLICATE", 2, "RETRY", 5)
    node = cluster.nodes[A]
    node.replication.copies.grow(node.jobs.spreads.by_job[job_id], (cluster.ids[C],), 0)
    node.replication.copies._send_copies(node.jobs.spreads.by_job[job_id], cluster.now)
    cluster.carry()
    late = cluster.lost[-1]
    cluster.dead.clear()
    assert cluster.ask(A, "ACKJOB", job_id) == 1
    assert cluster.holders(job_id) == []
    cluster.nodes[C].receive(cluster.ids[A], late.message, cluster.now)
    cluster.carry()
    assert cluster.holders(job_id) == []


def test_a_node_that_is_killed_finds_its_copies_again_and_those_it_waited_for():
    """A producer may have been answered just before, so that its job is kept."""
    cluster = Cluster(3)
    job_id = cluster.add(A, "RETRY", 5)
    cluster.ask(C, "PAUSE", "p", "in")
    assert cluster.ask(A, "ADDJOB", "p", "b", 0, "RETRY", 5, client=2) is None
    assert len(cluster.nodes[B].jobs.by_id) == 2
    cluster.kill(A)
    cluster.restart(A)
    cluster.pass_by(3)
    assert cluster.holders(job_id) == [A, B, C]
    (other,) = cluster.nodes[B].jobs.by_id.keys() - {job_id}
    assert cluster.holders(other) == [A, B]
    spread = cluster.nodes[A].jobs.spreads.by_job[job_id]
    assert spread.may_have == set(cluster.ids)
    assert cluster.get(A) == job_id
    cluster.pass_by(3)
    queued = [number for number in (A, B) if cluster.get(number, "p") == other]
    assert len(queued) == 1


def test_a_consumer_that_waits_gets_a_job_of_another_node_within_seconds():
    cluster = Cluster(3)
    cluster.ask(B, "GETJOB", "TIMEOUT", 60_000, "FROM", "q")
    cluster.pass_by(0.5)
    job_id = cluster.add(A, "REPLICATE", 1, "RETRY", 30)
    cluster.pass_by(5)
    assert cluster.answers[cluster.ids[B], 1][0][1] == job_id
    assert cluster.holders(job_id) == [A, B]
    assert cluster.ask(B, "ACKJOB", job_id) == 1
    assert cluster.holders(job_id) == []


def test_many_jobs_follow_the_first():
    cluster = Cluster(2)
    for _ in range(40):
        cluster.add(A, "REPLICATE", 1)
    taken = set()
    for _ in range(100):
        taken.add(cluster.get(B))
        cluster.pass_by(0.1)
    assert len(taken - {None}) == 40


def test_a_job_that_comes_at_most_once_is_gone_where_it_was_and_may_come_back():
    cluster = Cluster(2)
    job_id = cluster.add(A, "REPLICATE", 1, "RETRY", 0)
    assert cluster.get(B) is None
    late = next(iter(cluster.nodes[B].jobs.by_id.values()))
    assert late.job_id == job_id
    assert cluster.holders(job_id) == [B]
    cluster.pass_by(10)  # until B is no node that jobs come to
    assert cluster.get(A) is None
    assert cluster.get(A) == job_id
    cluster.restart(A)
    cluster.restart(B)
    cluster.pass_by(60)
    assert cluster.get(A) is cluster.get(B) is None


def test_a_disk_that_is_an_old_copy_hands_out_nothing_that_comes_at_most_once():
    cluster = Cluster(2)
    once = cluster.add(A, "RETRY", 0, "REPLICATE", 1)
    later = cluster.add(A, "RETRY", 0, "REPLICATE", 1, "DELAY", 30, queue="r")
    again = cluster.add(A, "RETRY", 5, "REPLICATE", 2, queue="s")
    cluster.kill(A)
    cluster.restart(A)
    node = cluster.nodes[A]
    node.hold_once(cluster.now)
    assert cluster.get(A) is None  # the others have yet to say what they remember
    node.disown(cluster.now)
    cluster.rename(A, "cd" * 20)
    cluster.pass_by(60)
    assert cluster.get(A) is None
    assert cluster.get(A, "r") is None
    assert {once, later} < set(node.jobs.by_id)
    assert cluster.ask(A, "ENQUEUE", once, later) == 0
    assert cluster.ask(A, "ACKJOB", again) == 1
    assert cluster.holders(again) == []


def test_a_disk_that_is_no_old_copy_hands_out_all_after_two_seconds():
    cluster = Cluster(2)
    once = cluster.add(A, "RETRY", 0, "REPLICATE", 1)
    cluster.kill(A)
    cluster.restart(A)
    cluster.nodes[A].hold_once(cluster.now)
    assert cluster.get(A) is None
    cluster.pass_by(2.1)
    got = cluster.ask(A, "GETJOB", "NOHANG", "WITHCOUNTERS", "FROM", "q")
    assert got == [[b"q", once, b"body", "nacks", 0, "additional-deliveries", 0]]
    cluster.pass_by(60)
    assert cluster.get(A) is None


def test_jobs_with_large_bodies_are_given_in_several_messages():
    cluster = Cluster(2)
    for _ in range(4):
        cluster.ask(A, "ADDJOB", "q", bytes(600_000), 0, "REPLICATE", 1)
    for _ in range(8):
        cluster.add(A, "REPLICATE", 1)
    node = cluster.nodes[A]
    node.receive(cluster.ids[B], Need(b"q", 6), cluster.now)
    given = [each.message.copies for each in node.letters]
    assert [len(copies) for copies in given] == [1, 1, 1, 3]


def test_letters_that_cannot_leave_have_bounds():
    cluster = Cluster(2)
    node = cluster.nodes[A]
    for _ in range(MOST_LETTERS + 10):
        node.send(cluster.ids[B], Need(b"q", 1))
    assert len(node.letters) == MOST_LETTERS


def test_a_job_whose_producer_waits_stays_so_though_another_node_works_on_it():
    cluster = Cluster(3)
    cluster.ask(C, "PAUSE", "q", "in")
    assert cluster.ask(A, "ADDJOB", "q", "b", 0, "REPLICATE", 3, "RETRY", 2) is None
    (job_id,) = cluster.nodes[A].jobs.by_id
    cluster.pass_by(3)
    assert cluster.get(B) == job_id
    assert cluster.ask(A, "WORKING", job_id) == 2
    cluster.ask(C, "PAUSE", "q", "none")
    cluster.pass_by(3)
    assert cluster.answers[cluster.ids[A], 1].text == job_id


def test_what_another_node_says_of_deliveries_never_grows_beyond_a_line():
    cluster = Cluster(2)
    job_id = cluster.add(A, "REPLICATE", 2, "RETRY", 5)
    assert cluster.get(A) == job_id
    for _ in range(3):
        said = IsQueued(job_id, MOST_NUMBER, MOST_NUMBER)
        cluster.nodes[A].receive(cluster.ids[B], said, cluster.now)
    cluster.pass_by(20)
    assert cluster.get(A) == job_id
    assert cluster.nodes[A].jobs.by_id[job_id].deliveries < 2**63


# ---- nodes that come back


def returned(cluster, number, *, tells=True):
    """Let a node be there again: with links, or while others have not told anything."""
    cluster.dead.discard(cluster.ids[number])
    cluster.now += 0.1
    node = cluster.nodes[number]
    node.desk.holding.begin(node.peers.others, cluster.now)
    if tells:
        cluster.link(number)
    return node


def test_what_was_acknowledged_while_a_node_was_away_does_not_come_there():
    cluster = Cluster(3)
    jobs = [cluster.add(A, "REPLICATE", 3, "RETRY", 60) for _ in range(5)]
    cluster.kill(A)
    cluster.pass_by(61)
    assert cluster.ask(B, "ACKJOB", *jobs[:4]) == 4
    cluster.pass_by(100)  # pauses have grown
    returned(cluster, A, tells=False)
    assert cluster.get(A) is None
    cluster.link(A)
    assert cluster.get(A) == jobs[4] or cluster.get(B) == jobs[4] or cluster.get(C)
    cluster.pass_by(1)
    assert not any(cluster.holders(each) for each in jobs[:4])


def test_what_is_queued_elsewhere_is_said_to_a_node_that_returns():
    cluster = Cluster(2)
    job_id = cluster.add(A, "REPLICATE", 2, "RETRY", 5)
    cluster.kill(A)
    cluster.pass_by(6)
    assert [each.jobs.by_id[job_id].state for each in cluster.nodes] == ["queued"] * 2
    returned(cluster, A)
    states = [each.jobs.by_id[job_id].state for each in cluster.nodes]
    assert sorted(states) == ["active", "queued"]


def test_a_deletion_that_a_node_has_missed_is_said_when_it_returns():
    cluster = Cluster(2)
    job_id = cluster.add(A, "REPLICATE", 2, "RETRY", 60)
    cluster.kill(A)
    assert cluster.ask(B, "FASTACK", job_id) == 1
    returned(cluster, A)
    assert cluster.get(A) is None
    assert cluster.holders(job_id) == []


def test_a_job_waits_for_each_of_its_holders_and_for_no_other_node():
    cluster = Cluster(3)
    both = cluster.add(A, "REPLICATE", 2, "RETRY", 60)
    (holder,) = set(cluster.holders(both)) - {A}
    other = ({B, C} - {holder}).pop()
    alone = cluster.add(A, "REPLICATE", 1, "RETRY", 60)
    node = returned(cluster, A, tells=False)
    assert cluster.get(A) == alone
    node.receive(cluster.ids[other], Mark(), cluster.now)
    assert cluster.get(A) is None
    new = cluster.add(A, "REPLICATE", 3, "RETRY", 60)
    assert cluster.get(A) == new  # it came after the return
    node.receive(cluster.ids[holder], Mark(), cluster.now)
    assert cluster.get(A) == both


def test_a_job_is_held_as_long_as_its_holder_talks_and_two_seconds_more():
    cluster = Cluster(2)
    job_id = cluster.add(A, "REPLICATE", 2, "RETRY", 60)
    node = returned(cluster, A, tells=False)
    node.desk.holding.linked(cluster.ids[B], cluster.now)
    for _ in range(5):
        cluster.pass_by(1.9)
        node.receive(cluster.ids[B], SetAck(cluster_job(B), ()), cluster.now)
        assert cluster.get(A) is None
    cluster.pass_by(2.1)
    assert cluster.get(A) == job_id


def test_a_holder_whose_link_stood_all_along_is_waited_for_two_seconds():
    cluster = Cluster(2)
    job_id = cluster.add(A, "REPLICATE", 2, "RETRY", 60)
    node, other = cluster.nodes[A], cluster.ids[B]
    cluster.now += 0.1
    node.desk.holding.silent(other)  # as others say of it, perhaps
    node.desk.holding.heard(other, cluster.now)
    cluster.pass_by(1.9)
    assert cluster.get(A) is None
    node.receive(other, SetAck(cluster_job(B), ()), cluster.now)
    cluster.pass_by(0.3)
    assert cluster.get(A) == job_id  # no mark is behind what it says


def cluster_job(number):
    return f"D-{number:08x}-" + "A" * 24 + "-05a1"


def test_a_holder_of_the_version_before_is_waited_for_two_seconds():
    cluster = Cluster(2)
    cluster.old = set(cluster.ids)
    job_id = cluster.add(A, "REPLICATE", 2, "RETRY", 60)
    node = returned(cluster, A)
    cluster.pass_by(1.9)
    assert cluster.get(A) is None
    node.receive(cluster.ids[B], SetAck(cluster_job(B), ()), cluster.now)
    cluster.pass_by(0.3)
    assert cluster.get(A) == job_id


def test_who_waits_for_a_job_that_was_held_gets_it_when_it_is_free():
    cluster = Cluster(2)
    job_id = cluster.add(A, "REPLICATE", 2, "RETRY", 60)
    returned(cluster, A, tells=False)
    cluster.ask(A, "GETJOB", "TIMEOUT", 60_000, "FROM", "q", client=7)
    assert cluster.answers == {}
    cluster.link(A)
    assert cluster.answers[cluster.ids[A], 7][0][1] == job_id
    assert not cluster.nodes[A].desk.has_released, "they are served once"


def test_who_waits_is_served_by_a_mark_that_comes_before_anything_else_is_due():
    cluster = Cluster(2)
    job_id = cluster.add(A, "REPLICATE", 2, "RETRY", 600)
    cluster.pass_by(30)
    node, other = cluster.nodes[A], cluster.ids[B]
    node.desk.holding.silent(other)
    node.desk.holding.heard(other, cluster.now)
    assert cluster.ask(A, "GETJOB", "FROM", "q", client=7) is None
    node.receive(other, Mark(), cluster.now)
    cluster.pass_by(0.1)
    assert cluster.answers[node.node_id, 7][0][1] == job_id


def test_a_look_that_comes_late_is_no_stand_still_however_short_the_time_out():
    holding = Cluster(2).nodes[A].desk.holding
    holding.patience = 0.1
    for at in range(10):
        holding.beat(100 + at * 0.3)
    assert not holding.stood_still


def test_a_node_that_waits_for_a_greeting_to_send_its_mark_sleeps(monkeypatch):
    cluster = Cluster(2)
    cluster.add(A, "REPLICATE", 2, "RETRY", 600)
    cluster.pass_by(5)
    node = cluster.nodes[A]
    monkeypatch.setattr(type(node.peers), "takes_marks", lambda *_: None)
    node.replication.linked(cluster.ids[B], cluster.now)
    for _ in range(3):
        node.tick(cluster.now)
    assert node.next_tick() != 0.0
    assert node.replication.telling.is_busy


def test_a_node_that_stood_still_holds_before_it_has_noticed_by_itself():
    cluster = Cluster(2)
    cluster.add(A, "REPLICATE", 2, "RETRY", 60)
    holding = cluster.nodes[A].desk.holding
    holding.patience = 3.0
    holding.beat(cluster.now)
    cluster.now += 3.5
    assert cluster.get(A) is None
    assert holding.stood_still


def waiting_for_three(timeout):
    """A producer waits for three copies; of three nodes one has just gone, unsuspected."""
    cluster = Cluster(3)
    cluster.kill(B)
    cluster.unsuspected = {cluster.ids[B]}
    assert cluster.ask(A, "ADDJOB", "q", "b", timeout, "REPLICATE", 3) is None
    return cluster


def test_a_node_that_is_not_suspected_counts_and_is_asked_until_the_time_is_over():
    cluster = waiting_for_three(4000)
    cluster.pass_by(1)
    assert cluster.answers == {}
    cluster.dead.clear()
    cluster.link(B)
    cluster.pass_by(0.1)
    job_id = cluster.answers.pop((cluster.ids[A], 1)).text
    assert cluster.holders(job_id) == [A, B, C]
    cluster.kill(B)
    assert cluster.ask(A, "ADDJOB", "q", "b", 4000, "REPLICATE", 3) is None
    cluster.pass_by(3.9)
    assert cluster.answers == {}
    cluster.pass_by(0.2)
    assert "Timeout reached" in cluster.answers[cluster.ids[A], 1].text


def test_without_a_time_a_producer_is_refused_when_a_node_is_suspected():
    cluster = waiting_for_three(0)
    cluster.pass_by(10)
    assert cluster.answers == {}
    cluster.unsuspected.clear()
    cluster.pass_by(2)
    refused = cluster.answers[cluster.ids[A], 1]
    assert refused.text.startswith("NOREPL Not enough reachable nodes")
    assert [len(each.jobs.by_id) for each in cluster.nodes[::2]] == [0, 0]


def test_a_node_that_is_forgotten_while_it_is_told_of_jobs_is_told_no_more(monkeypatch):
    monkeypatch.setattr(Members, "has_room", lambda *_: False)
    cluster = Cluster(3)
    node = cluster.nodes[0]
    node.replication.linked(cluster.ids[1], cluster.now)
    cluster.ids.pop(1)
    node.replication.telling.tick()
    assert not node.replication.telling.is_busy


def test_jobs_that_are_done_keep_no_new_ones_out_however_long_their_ids_are_known():
    cluster = Cluster(2)
    once, done = "D-abababab-%s-05a0", "D-abababab-%s-05a1"
    for number in range(300):
        for form in (once, done):
            job_id = form % f"{number:024}"
            cluster.nodes[0].emit(Buried(job_id, 90_000.0, True, 1), cluster.now)
    cluster.nodes[0].memory.limit = 350_000
    assert cluster.nodes[0].memory_level == 1  # and it keeps no copies
    cluster.ask(0, "QLEN", "q")
    cluster.pass_by(3)
    assert cluster.nodes[0].memory_level == 0
    tombs = cluster.nodes[0].jobs.spreads.tombs
    assert set(tombs) == {once % f"{number:024}" for number in range(300)}
    cluster.nodes[0].memory.limit = 1 << 30
    cluster.pass_by(90_000, step=10_000)
    assert not tombs
