"""Sends readings, alarms and the verdict to W&B, TensorBoard, MLflow, Trackio, Prometheus and webhooks."""
