/* What the pretended driver and the pretended CUPTI know of each other. */
#ifndef FAKE_H
#define FAKE_H
#include <stddef.h>
#include <stdint.h>

int64_t fake_now_ns(void);

/* Called by the driver: around each of its functions, and for what it makes the device do. */
uint32_t fake_call_begins(void);                    /* returns a correlation id */
void fake_call_ends(uint32_t correlation, const char *function, int64_t begin_ns);
void fake_work(uint32_t correlation, int is_copy, int64_t begin_ns, int64_t end_ns);

#endif
