"""What clients were promised, and whether it holds; looked at with each answer, so that a
run costs no more the longer it is."""

from __future__ import annotations

from rq.resp import Status


class Broken(AssertionError):
    """A promise does not hold."""


class Promise:
    """What the producer of a job was told, and what consumers did since."""

    def __init__(self, at, words):
        self.at = at
        self.queue = words[1]
        options = dict(zip(words[4::2], words[5::2], strict=False))
        self.is_async = "ASYNC" in words
        self.retry = options.get("RETRY")
        self.wanted = options.get("REPLICATE", 1)
        self.short = options.get("TTL", 86400) < 1000
        self.delivered = 0
        self.disturbed = False  # NACK, ENQUEUE, DEQUEUE: it may come again
        self.released = False  # FASTACK, DELJOB: nothing is promised any more


class Ledger:
    """All promises of a world."""

    def __init__(self, world):
        self._world = world
        self.jobs = {}
        self.delivered = {}  # of any id, promised or not
        self.acked = set()
        self.acked_by = {}  # by job: when which nodes answered that, which had it
        self.unsure = set()  # acknowledged by clients that had no answer
        self.without = set()  # producers whose nodes kept no copy when they were asked
        self.deleted = set()  # also those whose producers had no answer
        self.at_hand = []  # ids and nodes of deliveries, the latest last
        self.lost_disks = set()
        self.is_drained = False  # no consumer is left
        self.is_old = False  # a disk that came back from an old copy unknown to others
        self.is_over = False  # all is collected: nothing may come again

    def note(self, host, client, value, asked):
        """Take an answer that has reached its client."""
        _, words, about = asked
        match words[0]:
            case "ADDJOB":
                self._answered(host, client, words, value)
            case "GETJOB":
                if isinstance(value, list):
                    for _, job_id, *_ in value:
                        self._delivered(host, job_id)
            case "ACKJOB":
                self._acked(host, value, about)

    def _answered(self, host, client, words, value):
        """The producer of a job has its answer."""
        if isinstance(value, Status):
            self._added(host, words, value.text)
        elif "Not enough reachable" in getattr(value, "text", ""):
            self._refused(host, client, words)

    def _acked(self, host, value, job_id):
        """Who acknowledged a job has the answer."""
        if value == 1 and job_id in host.node.jobs.spreads.by_job:
            self.acked_by.setdefault(job_id, {})[host.node_id] = self._world.now
        if value == 1 or (value == 0 and self._is_kept(host, job_id)):
            self.acked.add(job_id)

    @staticmethod
    def _is_kept(host, job_id):
        """Whether a node keeps the acknowledgement of a job that it does not have."""
        return int(job_id[-4:], 16) % 2 == 1 and not host.node.jobs.leaving

    def _added(self, host, words, job_id):
        if job_id in self.jobs:
            raise Broken(f"{job_id} was given to two producers")
        promise = self.jobs[job_id] = Promise(self._world.now, words)
        promise.delivered = self.delivered.get(job_id, 0)
        # A node that keeps no copy, and whose producer does not wait, has no trace of it.
        promise.released = promise.is_async and host.node.cannot_keep() is not None
        if promise.is_async or promise.wanted < 2 or promise.delivered:
            return
        copies = sum(
            job_id in each.on_disk for each in self._world.hosts.values()
        ) + len(self.lost_disks)
        if copies < promise.wanted:
            raise Broken(
                f"{job_id}: {copies} of {promise.wanted} copies when it was answered"
            )

    def _delivered(self, host, job_id):
        self._see_return(host, job_id)
        times = self.delivered[job_id] = self.delivered.get(job_id, 0) + 1
        at_most_once = int(job_id[-4:], 16) % 2 == 0 and not self.is_old
        if at_most_once and times > 1:
            raise Broken(f"{job_id} comes at most once, and came {times} times")
        promise = self.jobs.get(job_id)
        if self.is_over and not (promise and promise.released):
            raise Broken(f"{job_id} came after all was collected")
        self.at_hand.append((job_id, host.node_id))
        if promise is None:
            return
        promise.delivered += 1
        job = host.node.jobs.by_id.get(job_id)
        if job is not None and job.due - host.now < 0.8:
            promise.disturbed = True  # it had waited for nearly a whole RETRY
        clean = not self._world.faulty and not promise.disturbed
        if clean and promise.delivered > 1:
            raise Broken(f"{job_id} came again, and nothing was wrong")

    def _refused(self, host, client, words):
        """A producer that waits is refused only if too few are left that are not suspected.
        A node that kept none of the job when it was asked has no copy of it later."""
        options = dict(zip(words[4::2], words[5::2], strict=False))
        keeps = client not in self.without and host.node.cannot_keep() is None
        left = keeps + len(host.members.counted)
        if "ASYNC" not in words and options.get("REPLICATE", 1) <= left:
            raise Broken(f"refused, though {left} nodes count")

    def _see_return(self, host, job_id):
        """A node hands out nothing of before that was acknowledged, while it was away, on
        a node of which it knows that it may have a copy, once their link stands. Who
        deletes a job, or loses all of them, forgets with it that it was acknowledged,
        and has nothing to tell."""
        world, links = self._world, self._world.links
        if not world.orderly or host.node_id in self.lost_disks:
            return
        job = host.node.jobs.by_id.get(job_id)
        spread = host.node.jobs.spreads.by_job.get(job_id)
        if job is None or spread is None or job_id in self.deleted:
            return
        for other, at in self.acked_by.get(job_id, {}).items():
            if other in self.lost_disks or other not in spread.may_have:
                continue
            pair = other, host.node_id
            since = links.since.get(pair)
            back = max(links.back.get(pair[::-1], 0.0), host.up_since)
            there = world.hosts.get(other)
            if since is None or there is None or not at < since <= world.now:
                continue
            is_back = since - back < 0.01 and there.up_since < at
            is_back = is_back and job.created - host.ahead < back
            if is_back and there.free_at - since < 1.0 and not there.is_failing:
                raise Broken(
                    f"{job_id} was acknowledged before {host.node_id[:4]} was back"
                )

    def disturb(self, job_id):
        """Somebody lets a job come again, or not."""
        if job_id in self.jobs:
            self.jobs[job_id].disturbed = True

    def release(self, job_id):
        """Somebody deletes a job: nothing is promised of it."""
        self.deleted.add(job_id)
        if job_id in self.jobs:
            self.jobs[job_id].released = True

    def owed(self):
        """Return the jobs that must have been acknowledged once all had their chance."""
        return [
            job_id
            for job_id, promise in self.jobs.items()
            if job_id not in self.acked
            and job_id not in self.unsure
            and not promise.released
            and not promise.short
            and promise.retry != 0
            and not (self.lost_disks and (promise.is_async or promise.wanted < 2))
        ]
