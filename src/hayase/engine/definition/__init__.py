"""Definitions: versions of what a pipeline declares, how two of them differ, and the stages that follow from one."""
