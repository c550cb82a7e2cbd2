"""tmp"""


def page(report):
    return ""
