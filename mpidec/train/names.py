"""The names of the data sets and models, importable without torch."""

DATA = {"digits": "mpidec.train.data:digits"}
MODELS = {"mlp": "mpidec.train.models:mlp", "logistic": "mpidec.train.models:logistic"}
