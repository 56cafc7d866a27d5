"""Reserved for the AutoML interface (`tao_sdk.automl`), which this version does not have yet."""
