/* Libraries that are loaded at run time, on Linux and on Windows. */
#ifndef SYNCSCOPE_DYNAMIC_LIBRARY_H
#define SYNCSCOPE_DYNAMIC_LIBRARY_H

#ifdef _WIN32
#include <windows.h>
static inline void *open_library(const char *name) { return (void *)LoadLibraryA(name); }
static inline void *find_symbol(void *library, const char *name) {
    return (void *)GetProcAddress((HMODULE)library, name);
}
static inline const char *why_not_opened(void) { return "it cannot be found or loaded"; }
#else
#include <dlfcn.h>
static inline void *open_library(const char *name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }
static inline void *find_symbol(void *library, const char *name) { return dlsym(library, name); }
static inline const char *why_not_opened(void) {
    const char *text = dlerror();
    return text ? text : "no reason given";
}
#endif

#endif
