"""Stateless queries as views: a query that reads a stage without a kernel reads the stream behind it instead.

Late records are then found in the stream itself. The output of a filter does not show how far its input has come, only how far
the records are that passed. Reading the stream also saves a batch of latency. Windows by rows count the view's records: the
inputs that bring their times read through the view too.

A view that joins tables is not an exception: its reader looks the tables up again, as they are when the batch with the record
begins. Stages at the same offset take a record in one batch and so agree; a stage that reads it later sees later tables.
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
    """Return the stage with every input that is a view replaced by the stream behind it. Views already read through others."""
    used = {
        stage_input.stream: views[stage_input.stream]
        for stage_input in draft.stage.inputs
        if stage_input.stream in views
    }
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
        (behind,), (view_input,) = view.stage.inputs, view.draft_inputs
        inputs.append(replace(own, stream=behind.stream, map_side=Composed(behind.map_side, own.map_side)))
        draft_inputs.append(replace(draft_input, views=(own.stream, *view_input.views)))
    fingerprints = [view.stage.fingerprint for view in used.values()]
    text = "\0".join((*fingerprints, draft.stage.fingerprint))
    fingerprint = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    others = shared_scan(inputs, draft.plan) if draft.plan is not None else None
    windowed = draft.stage.windowed or any(view.stage.windowed for view in used.values())
    stage = replace(draft.stage, inputs=tuple(inputs), fingerprint=fingerprint, shared_scan=others, windowed=windowed)
    return replace(draft, stage=stage, draft_inputs=tuple(draft_inputs))
