"""The dashboards."""

from deploy.grafana.boards.collectives import COLLECTIVES
from deploy.grafana.boards.collector import COLLECTOR
from deploy.grafana.boards.job import JOB
from deploy.grafana.boards.node import NODE
from deploy.grafana.boards.overview import OVERVIEW

DASHBOARDS = (OVERVIEW, JOB, NODE, COLLECTIVES, COLLECTOR)
