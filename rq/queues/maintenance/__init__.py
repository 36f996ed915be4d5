"""What a queue sees to beside its messages: checkpoints, deposits, retention, stalls."""
