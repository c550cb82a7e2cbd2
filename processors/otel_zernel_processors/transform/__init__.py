"""Changes metrics, spans and log records by statements, a part of OTTL."""

from otel_zernel_processors.transform.processor import TransformProcessor as TransformProcessor
