/* Huge pages for large results. See pages.c. */
#ifndef STATOR_PAGES_H
#define STATOR_PAGES_H

#include <stdint.h>

/* Asks for huge pages inside of memory that nobody has written to, where they are quickly had; writes to it. */
void pages_ask(void *fresh, int64_t bytes);

#endif
