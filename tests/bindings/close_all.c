/* Closes every descriptor while it is loaded. */
#define ON_LOAD close_everything()
#include "base.h"
