"""A job that hangs: the decision, its record, and the words for it."""

from otel_zernel_libraries.training.hangs.decision import Rank, hang_of, stop_of
from otel_zernel_libraries.training.hangs.job_hang import HANG, HungCollective, HungRank, HungRole, JobHang, SeenHang
from otel_zernel_libraries.training.hangs.rank_signs import Ending, RankSigns
from otel_zernel_libraries.training.hangs.words import age_words, hang_advice, hang_sentences, hung_rank_text

__all__ = [
    "HANG",
    "Ending",
    "HungCollective",
    "HungRank",
    "HungRole",
    "JobHang",
    "Rank",
    "RankSigns",
    "SeenHang",
    "age_words",
    "hang_advice",
    "hang_of",
    "hang_sentences",
    "hung_rank_text",
    "stop_of",
]
