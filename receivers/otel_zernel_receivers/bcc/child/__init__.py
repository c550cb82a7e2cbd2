"""The process that compiles and attaches the programs: it runs in the interpreter of the system, which has BCC.

Its modules need only the standard library of Python 3.9 and the package bcc, which the collector's interpreter lacks.
"""
