"""The campaign: rounds of faults, drawn by seed, against a pipeline that uses every kind of stage.

`make test-long` runs `python -m campaign`; `tests/campaign/test_rounds.py` runs five rounds in `make test`. What is injected
and what is checked is in docs/design/0017-campaign.md.
"""
