/* A program in C: a forecast, an error, a call given up, the same twice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stepcast.h"

#define EXPECT(condition)                                                \
  if (!(condition)) {                                                    \
    fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
    return 1;                                                            \
  }

static int enough(void *user, double share, const char *note) {
  (void)note;
  *(int *)user += 1;
  return share >= 0;
}

int main(void) {
  EXPECT(stepcast_api_version() == STEPCAST_API_VERSION);
  EXPECT(strncmp(stepcast_version(), "stepcast ", 9) == 0);
  char *why = NULL;
  EXPECT(stepcast_open("/nowhere", &why) == NULL && strstr(why, "/nowhere") != NULL);
  free(why);
  stepcast_engine *engine = stepcast_open(NULL, NULL);
  EXPECT(engine != NULL);

  const char *request =
      "{\"command\": \"predict\", \"inputs\": [{\"workload\": \"rm1\", \"system\": \"dgx-h100\"}],"
      " \"options\": {\"set\": {\"devices\": 8}}}";
  stepcast_call *first = stepcast_run(engine, request, NULL, NULL);
  stepcast_call *second = stepcast_start(engine,
      "{\"arguments\": [\"predict\", \"my job\", \"--set\", \"devices=8\", \"--format\", \"json\"],"
      " \"documents\": {\"my job\": \"{\\\"workload\\\": \\\"rm1\\\", \\\"system\\\": \\\"dgx-h100\\\"}\"}}");
  while (!stepcast_wait(second, 1000)) {
  }
  EXPECT(stepcast_status(first) == STEPCAST_DONE && stepcast_status(second) == STEPCAST_DONE);
  EXPECT(strcmp(stepcast_answer(first), stepcast_answer(second)) == 0);
  EXPECT(strstr(stepcast_answer(first), "\"iteration_time_s\"") != NULL);
  EXPECT(stepcast_screen(first)[0] == '\0');
  stepcast_free(first);
  stepcast_free(second);
  first = stepcast_run(engine, "{\"command\": \"predict\", \"inputs\": [\"rm1\"], \"options\": {\"gpus\": 8}, \"screen\": true}", NULL, NULL);
  EXPECT(strstr(stepcast_screen(first), "/step") != NULL && strchr(stepcast_answer(first), '{') == stepcast_answer(first));
  stepcast_free(first);

  stepcast_call *wrong = stepcast_run(engine, "[\"predict\", \"--set\", \"workload=rm11\", \"--set\", \"system=dgx-h100\"]", NULL, NULL);
  EXPECT(stepcast_status(wrong) == STEPCAST_WRONG_INPUT && strstr(stepcast_error(wrong), "rm11") != NULL);
  EXPECT(strncmp(stepcast_error(wrong), "stepcast: ", 10) != 0 && stepcast_answer(wrong)[0] == '\0');
  stepcast_free(wrong);
  wrong = stepcast_run(engine, "nothing", NULL, NULL);
  EXPECT(stepcast_status(wrong) == STEPCAST_WRONG_INPUT);
  stepcast_free(wrong);

  int told = 0;
  const char *large =
      "{\"command\": \"plan\", \"inputs\": [{\"workload\": \"gpt3-175b\", \"system\": \"dgx-a100-80gb\"}],"
      " \"options\": {\"set\": {\"devices\": 1024}}}";
  stepcast_call *given_up = stepcast_run(engine, large, enough, &told);
  EXPECT(stepcast_status(given_up) == STEPCAST_CANCELLED && told > 0);
  stepcast_free(given_up);
  stepcast_free(stepcast_start(engine, large)); /* goes on alone until it notices */
  stepcast_close(engine);
  return 0;
}
