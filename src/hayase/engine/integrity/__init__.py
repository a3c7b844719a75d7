"""The integrity of a home: heads that reveal missing files, verification, repairs, migrations between formats."""
