/* Does not set the size. */
#define SHAPELESS
#include "base.h"
