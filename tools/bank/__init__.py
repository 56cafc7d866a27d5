"""Makes the models of the packaged skill bank from compact tables.

`models/<name>.yaml` says what a model is and what its actions take and give,
`models/<name>.params.yaml` lists every parameter of its specs with type, default and limits, and
`glossary.yaml` explains them. Metadata, schemas, templates and manifests below
`src/tao_sdk/skills/bank/skills` follow from these, and so cannot disagree with each other.

    python -m tools.bank            write them
    python -m tools.bank --check    say what is out of date, and exit 1
"""
