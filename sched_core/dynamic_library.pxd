"""Libraries that are loaded at run time."""

cdef extern from "dynamic_library.h":
    void *open_library(const char *name)   # NULL if it cannot be
    void *find_symbol(void *library, const char *name)
    const char *why_not_opened()
