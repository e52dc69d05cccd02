"""The structured dynamic program: exact over all stage boundaries and per-stage choices.

``tables`` prices every possible stage, ``recurrence`` chains stages from the last one, and
``frontier`` trades the bottleneck load against the synchronisation.
"""
