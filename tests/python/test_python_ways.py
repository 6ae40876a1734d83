"""What people write in Python: values of NumPy, ranges, answers as jobs, copies, processes, interrupts, words."""

import concurrent.futures
import copy
import inspect
import json
import multiprocessing
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import stepcast
from stepcast import _library
from stepcast._errors import in_python

SMALL = {"workload": "rm1", "system": "dgx-h100", "devices": 8}
LLAMA = {"workload": "llama3-8b", "system": "dgx-h100", "devices": 16}


def needs(module):
    try:
        return __import__(module)
    except ImportError:
        raise unittest.SkipTest(f"{module} is not installed")


def step_of(devices):
    return stepcast.predict(SMALL, set={"devices": devices})


class Values(unittest.TestCase):
    def test_a_range_is_a_list_of_values(self):
        points = stepcast.sweep(SMALL, set={"devices": range(8, 33, 8)}).points
        self.assertEqual([p.set.devices for p in points], [8, 16, 24, 32])
        self.assertEqual(stepcast.sweep(SMALL, set={"devices": (n for n in (8, 16, 24, 32))}).points, points)

    def test_numbers_and_arrays_of_numpy(self):
        numpy = needs("numpy")
        plain = stepcast.sweep(SMALL, set={"devices": [8, 16]})
        self.assertEqual(stepcast.sweep(SMALL, set={"devices": numpy.array([8, 16])}).points, plain.points)
        self.assertEqual(stepcast.sweep(SMALL, set={"devices": [numpy.int64(8), numpy.int32(16)]}).points, plain.points)
        job = {**SMALL, "devices": numpy.int64(16), "batch": {"global": numpy.int64(4096)}}
        self.assertEqual(stepcast.predict(job), stepcast.predict({**SMALL, "devices": 16, "batch": {"global": 4096}}))
        self.assertEqual(stepcast.predict(SMALL, set={"devices": numpy.int64(16)}), stepcast.predict(SMALL, set={"devices": 16}))

    def test_keywords_are_keys(self):
        by_set = stepcast.predict(LLAMA, set={"parallel.tensor": 2, "parallel.pipeline": 2, "parallel.zero": 1})
        by_keyword = stepcast.predict("llama3-8b", on="dgx-h100", gpus=16, tp=2, pp=2, zero=1)
        self.assertEqual(by_keyword.iteration_time_s, by_set.iteration_time_s)
        points = stepcast.sweep("llama3-8b", on="h100", gpus=16, tp=[1, 2], zero=1).points
        self.assertEqual(len(points), 2)


class Answers(unittest.TestCase):
    def test_parts_have_attributes(self):
        step = stepcast.predict(SMALL)
        self.assertEqual(step.memory_bytes.total, step["memory_bytes"]["total"])
        self.assertEqual(step.job.system, step["job"]["system"])
        self.assertIn("total", dir(step.memory_bytes))
        with self.assertRaisesRegex(AttributeError, "did you mean 'total'"):
            step.memory_bytes.totle
        self.assertIs(type(step.to_dict()["memory_bytes"]), dict)
        self.assertEqual(json.loads(step.to_json()), step)

    def test_copies_and_pickles(self):
        step = stepcast.predict(SMALL)
        plans = stepcast.plan(LLAMA, top=2)
        for answer in (step, plans):
            for again in (copy.copy(answer), copy.deepcopy(answer), pickle.loads(pickle.dumps(answer))):
                self.assertEqual(again, answer)
                self.assertIs(type(again), type(answer))
                self.assertEqual((again.command, again.exit_code), (answer.command, answer.exit_code))
        self.assertEqual(pickle.loads(pickle.dumps(step)).memory_bytes.total, step.memory_bytes.total)
        self.assertIsInstance(copy.deepcopy(plans).best, stepcast.Planned)

    def test_answers_come_from_other_processes(self):
        expected = [step_of(n) for n in (8, 16)]
        for method in ("fork", "spawn"):
            with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
                self.assertEqual(list(pool.map(step_of, (8, 16))), expected)

    def test_answers_are_jobs(self):
        step = stepcast.predict(LLAMA, set={"parallel.tensor": 2, "parallel.zero": 1})
        self.assertEqual(stepcast.predict(step).iteration_time_s, step.iteration_time_s)
        self.assertNotEqual(stepcast.predict(step, set={"parallel.tensor": 4}).iteration_time_s, step.iteration_time_s)
        plans = stepcast.plan(LLAMA)
        self.assertAlmostEqual(stepcast.predict(plans).iteration_time_s, plans.best.predicted_step_s, delta=1e-9 * plans.best.predicted_step_s)
        self.assertEqual(stepcast.predict(plans), stepcast.predict(plans.best))
        self.assertTrue(stepcast.explain(step, plans).changes)

    def test_a_plan_is_exported(self):
        best = stepcast.plan(LLAMA).best
        text = best.to_megatron()
        self.assertIn("--tensor-model-parallel-size", text)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "train.sh"
            best.to_megatron(file)
            self.assertEqual(file.read_text(), text)
        self.assertTrue(stepcast.predict(best).to_framework("torchtitan"))
        with self.assertRaises(stepcast.InputError):
            best.to_framework("nothing")

    def test_a_summary_is_the_screen(self):
        requests = []
        with unittest.mock.patch("stepcast._library.call", side_effect=lambda request, progress=None, call=_library.call: requests.append(request) or call(request, progress)):
            step = stepcast.predict(SMALL)
            self.assertIn("step", step.summary())
            self.assertIn("fix:", stepcast.predict("llama3-70b", gpus=8, tp=1).summary())
        self.assertEqual(len(requests), 2)  # one for each answer
        told = subprocess.run([os.environ["STEPCAST"], "predict", *(f"--set={k}={v}" for k, v in SMALL.items())], check=True, capture_output=True, text=True).stdout
        self.assertEqual(step.summary().splitlines(), [line for line in told.splitlines() if "  stepcast " not in line])  # what to type next
        self.assertEqual(repr(step.summary()), str(step))

    def test_pictures_with_matplotlib(self):
        needs("matplotlib").use("Agg")
        for answer in (stepcast.predict(SMALL), stepcast.sweep(SMALL, set={"devices": [8, 16]}),
                       stepcast.plan(LLAMA), stepcast.explain(SMALL, {**SMALL, "devices": 16})):
            self.assertTrue(answer.plot().get_xlabel())
        with self.assertRaisesRegex(TypeError, "no picture"):
            stepcast.show(SMALL).plot()


class Words(unittest.TestCase):
    def test_what_is_built_in(self):
        self.assertIn("llama3-8b", stepcast.workloads())
        self.assertIn("dgx-h100", stepcast.systems())
        self.assertTrue(stepcast.frameworks() and stepcast.devices() and stepcast.keys())

    def test_every_option_is_a_keyword_with_its_words(self):
        for name in ("predict", "plan", "sweep", "explain", "replay", "show", "fit", "compare"):
            function = getattr(stepcast, name)
            for keyword in inspect.signature(function).parameters:
                self.assertRegex(function.__doc__, rf"\n    {keyword}: \S", f"{name}: {keyword}")
            self.assertNotIn(" --", function.__doc__.replace("--help", ""))
        for keyword in ("on", "gpus", "tp", "pp", "zero", "gbs", "seq", "timeline", "tokens", "price"):
            self.assertIn(keyword, inspect.signature(stepcast.predict).parameters)

    def test_errors_speak_python(self):
        self.assertEqual(in_python("use --set devices=16"), 'use set={"devices": 16}')
        self.assertEqual(in_python("--zero 3 --time-limit"), "zero=3 time_limit")
        self.assertEqual(in_python("`stepcast list workloads` has them"), "`stepcast.workloads()` has them")
        self.assertEqual(in_python("`stepcast plan llama3-8b -n 8 --set batch.global=64`"),
                         '`stepcast.plan("llama3-8b", gpus=8, set={"batch.global": 64})`')
        self.assertEqual(in_python("`stepcast help predict`"), "`help(stepcast.predict)`")
        self.assertEqual(in_python("`stepcast predict --help`"), "`help(stepcast.predict)`")
        with self.assertRaises(stepcast.InputError) as caught:
            stepcast.predict(set={**SMALL, "workload": "rm11"})
        self.assertNotIn("--", str(caught.exception))
        self.assertIn("rm1", str(caught.exception))
        with self.assertRaises(TypeError):
            stepcast.predict(SMALL, no_such_option=True)
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((str(again), again.code), (str(caught.exception), 2))


class Interrupts(unittest.TestCase):
    def test_an_interrupt_ends_a_search_within_a_second(self):
        code = ("import stepcast; print('begun', flush=True)\n"
                "stepcast.plan({'workload': 'deepseek-v3', 'system': 'dgx-h100', 'devices': 2048}, time_limit=60)")
        for after in (0.3, 3.0):
            process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            process.stdout.readline()
            time.sleep(after)
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            told = process.communicate(timeout=30)[1]
            self.assertLess(time.monotonic() - begin, 1)
            self.assertIn("KeyboardInterrupt", told)
            self.assertEqual(process.returncode, -signal.SIGINT)

    def test_python_goes_on_after_one(self):
        signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            stepcast.plan({"workload": "gpt3-175b", "system": "dgx-a100-80gb", "devices": 1024}, time_limit=60)
        self.assertLess(time.monotonic() - begin, 1.3)
        self.assertGreater(stepcast.predict(SMALL).iteration_time_s, 0)


if __name__ == "__main__":
    unittest.main()
