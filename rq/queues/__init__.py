"""The owner of one queue: schedules its messages, runs its workers, answers for it."""
