"""A job that hangs: the decision, its record, and the words for it."""

from otel_zernel_libraries.training.hangs.decision import Rank as Rank
from otel_zernel_libraries.training.hangs.decision import hang_of as hang_of
from otel_zernel_libraries.training.hangs.decision import stop_of as stop_of
from otel_zernel_libraries.training.hangs.job_hang import HANG as HANG
from otel_zernel_libraries.training.hangs.job_hang import HungCollective as HungCollective
from otel_zernel_libraries.training.hangs.job_hang import HungRank as HungRank
from otel_zernel_libraries.training.hangs.job_hang import HungRole as HungRole
from otel_zernel_libraries.training.hangs.job_hang import JobHang as JobHang
from otel_zernel_libraries.training.hangs.job_hang import SeenHang as SeenHang
from otel_zernel_libraries.training.hangs.rank_signs import Ending as Ending
from otel_zernel_libraries.training.hangs.rank_signs import RankSigns as RankSigns
from otel_zernel_libraries.training.hangs.words import age_words as age_words
from otel_zernel_libraries.training.hangs.words import hang_advice as hang_advice
from otel_zernel_libraries.training.hangs.words import hang_sentences as hang_sentences
from otel_zernel_libraries.training.hangs.words import hung_rank_text as hung_rank_text
