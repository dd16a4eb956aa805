/* Never comes back from open, and keeps a processor busy meanwhile. */
#define ON_OPEN(count) for (volatile long n = (count);; n++)
#include "base.h"
