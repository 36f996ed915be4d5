"""The broker: queues without scripts, which programs pull from in the Redis protocol.

Bytes become commands (`rq.resp`), a dialect decides what a command does (`dialects`), the
node keeps what follows (`node`, pure), the store makes it durable before the answer
(`store`), the server joins them (`server`).
"""
