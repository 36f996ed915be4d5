"""One queue and the process that owns it: schedules messages, runs scripts, answers.

`process` joins the rooms and `loop` takes turns. ARCHITECTURE.md, "Rooms", says what each
room does; `attempts`, `schedule` and `concurrency` know no owner.
"""
