"""A query over a stage without a kernel reads the stream behind it: the stage serves as a view.

Lateness is then judged where the records are. Behind a filter it could not be: the filter's clock tells how far its input
is, its output only how far the records are that it let through. It also saves a batch of latency. Windows by rows count
the view's records: the inputs that bring their times look through the view too.

A view that meets tables is no exception: who reads it meets them anew, as they are when the batch begins that takes the
record. Stages that stand at the same place take it in one batch, and so agree; one that begins later meets later tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from hayase.core.stages import Input
from hayase.cql.map_sides import Composed
from hayase.cql.shared_scans import shared_scan
from hayase.cql.stage_drafts import Draft, DraftInput

__all__ = ["read_through_views"]


def read_through_views(views: Mapping[str, Draft], draft: Draft) -> Draft:
    """The stage as it reads what is behind the views among its inputs; views have looked through others themselves."""
    used = {each.stream: views[each.stream] for each in draft.stage.inputs if each.stream in views}
    if not used:
        return draft
    inputs: list[Input] = []
    draft_inputs: list[DraftInput] = []
    for own, draft_input in zip(draft.stage.inputs, draft.draft_inputs):
        view = used.get(own.stream)
        if view is None:
            inputs.append(own)
            draft_inputs.append(draft_input)
            continue
        (behind,), (seen,) = view.stage.inputs, view.draft_inputs
        inputs.append(replace(own, stream=behind.stream, map_side=Composed(behind.map_side, own.map_side)))
        draft_inputs.append(replace(draft_input, views=(own.stream, *seen.views)))
    marks = [view.stage.fingerprint for view in used.values()]
    text = "\0".join((*marks, draft.stage.fingerprint))
    fingerprint = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    others = shared_scan(inputs, draft.plan) if draft.plan is not None else None
    stage = replace(draft.stage, inputs=tuple(inputs), fingerprint=fingerprint, shared_scan=others)
    return replace(draft, stage=stage, draft_inputs=tuple(draft_inputs))
