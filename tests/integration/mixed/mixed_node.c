/* The native add-on of mixed_node.js: enter(f) calls f from C; spin() computes; fail() does, too, and throws. */
#include <node_api.h>

void mixed_spin(void);
void mixed_enter(void (*back)(void));

static napi_env current;
static napi_value called;

__attribute__((noinline)) static void mixed_back(void) {
  napi_value global, result;
  napi_get_global(current, &global);
  napi_call_function(current, global, called, 0, NULL, &result);
}

/* What f throws stays pending, and is thrown on where this returns to JavaScript. */
__attribute__((noinline)) static napi_value addon_enter(napi_env env, napi_callback_info info) {
  size_t count = 1;
  napi_get_cb_info(env, info, &count, &called, NULL, NULL);
  current = env;
  mixed_enter(mixed_back);
  current = NULL;
  return NULL;
}

__attribute__((noinline)) static napi_value addon_spin(napi_env env, napi_callback_info info) {
  (void)info;
  mixed_spin();
  current = env;
  return NULL;
}

__attribute__((noinline)) static napi_value addon_fail(napi_env env, napi_callback_info info) {
  (void)info;
  mixed_spin();
  napi_throw_error(env, NULL, "thrown by the add-on");
  return NULL;
}

NAPI_MODULE_INIT(/* napi_env env, napi_value exports */) {
  const struct {
    const char* name;
    napi_callback function;
  } all[] = {{"enter", addon_enter}, {"spin", addon_spin}, {"fail", addon_fail}};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
    napi_value function;
    napi_create_function(env, all[i].name, NAPI_AUTO_LENGTH, all[i].function, NULL, &function);
    napi_set_named_property(env, exports, all[i].name, function);
  }
  return exports;
}
