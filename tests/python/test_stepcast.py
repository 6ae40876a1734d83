"""The Python package against the executable (STEPCAST in the environment): same numbers, same words."""

import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import time
import unittest

import stepcast
from stepcast import _call

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXECUTABLE = os.environ["STEPCAST"]
SMALL = {"workload": "rm1", "system": "dgx-h100"}


def command(*arguments):
    """The document the command line prints."""
    return json.loads(subprocess.run([EXECUTABLE, *arguments, "--format", "json"], check=True, capture_output=True).stdout)


class Answers(unittest.TestCase):
    def test_prediction_is_the_command_s_own(self):
        expected = command("predict", "--set", "workload=rm1", "--set", "system=dgx-h100")
        by_settings = stepcast.predict(set=SMALL)
        self.assertEqual(by_settings.to_dict(), expected)
        self.assertEqual(stepcast.predict(SMALL)["iteration_time_s"], expected["iteration_time_s"])  # a dict is a job
        self.assertEqual(by_settings.iteration_time_s, expected["iteration_time_s"])
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "job.json"
            file.write_text(json.dumps(SMALL))
            self.assertEqual(stepcast.predict(file).iteration_time_s, expected["iteration_time_s"])

    def test_resolved_job_of_an_answer_is_a_job(self):
        once = stepcast.predict(SMALL, set={"batch.global": 4096})
        self.assertEqual(stepcast.predict(once.job).iteration_time_s, once.iteration_time_s)

    def test_a_dataclass_is_a_job(self):
        @dataclasses.dataclass
        class Batch:
            micro: int = 2

        @dataclasses.dataclass
        class Job:
            workload: str = "llama3-8b"
            system: str = "dgx-h100"
            devices: int = 8
            parallel: dict = dataclasses.field(default_factory=lambda: {"tensor": 2})
            batch: Batch = dataclasses.field(default_factory=Batch)
            stack: str = None  # is not said

        as_dict = {"workload": "llama3-8b", "system": "dgx-h100", "devices": 8, "parallel": {"tensor": 2}, "batch": {"micro": 2}}
        self.assertEqual(stepcast.predict(Job()).to_dict(), stepcast.predict(as_dict).to_dict())

    def test_lists_are_a_sweep(self):
        points = stepcast.sweep(SMALL, set={"devices": [8, 16], "formats.all_to_all_forward": ["fp32", "fp16"]})
        rows = points.tables["points" if "points" in points else next(iter(points.tables))]
        self.assertEqual(len(rows), 4)

    def test_explain_of_two_dicts_sums(self):
        answer = stepcast.explain(SMALL, {**SMALL, "devices": 16})
        a, b, delta = (row["step_s"] for row in answer["summary"])
        self.assertAlmostEqual(b - a, delta, delta=1e-12)
        self.assertNotEqual(delta, 0)
        self.assertEqual(stepcast.explain(SMALL, with_={"devices": 16})["summary"][2]["step_s"], delta)

    def test_plan_show_replay_convert(self):
        plan = stepcast.plan(SMALL, set={"devices": 8}, top=2)
        self.assertEqual(len(plan["plans"]), 2)
        self.assertGreater(plan["plans"][0]["predicted_step_s"], 0)
        self.assertTrue(stepcast.show(SMALL).tables)
        trace = ROOT / "traces" / "recorded" / "gpt-2"
        self.assertEqual(stepcast.replay(trace)["replays"][0]["ranks"], 2)
        halved = stepcast.replay([trace], scale=["gemm=0.5"])["replays"][0]
        self.assertLess(halved["what_if"]["step_s"] if "step_s" in halved["what_if"] else halved["what_if"]["changed_step_s"], halved["measured_step_s"])
        with tempfile.TemporaryDirectory() as folder:
            out = stepcast.convert(trace, pathlib.Path(folder) / "step.json", to="perfetto")
            self.assertIn("traceEvents", json.loads(pathlib.Path(out).read_text()))

    def test_pictures(self):
        html = stepcast.predict(SMALL)._repr_html_()
        self.assertIn("<svg", html)
        self.assertNotIn("<html", html)
        self.assertIn("<table", stepcast.show(SMALL)._repr_html_())

    def test_plan_of_an_answer_is_a_plan(self):
        plan = stepcast.plan(SMALL, effort="quick").plans[0]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "plan.json"
            file.write_text(json.dumps(plan))
            self.assertEqual(stepcast.predict(set={**SMALL, "embedding.plan": file}).iteration_time_s, plan["predicted_step_s"])

    def test_what_an_interpreter_prints(self):
        step = stepcast.predict(SMALL)
        self.assertIn(f"iteration_time_s {step.iteration_time_s:.4g}, ", repr(step))
        self.assertIn("fits True", repr(step))
        self.assertRegex(stepcast.__version__, r"^\d+\.\d+\.\d+$")

    def test_tables_as_frames(self):
        try:
            import pandas  # noqa: F401
        except ImportError:
            self.skipTest("pandas is not installed")
        points = stepcast.sweep(SMALL, set={"devices": [8, 16]})
        self.assertEqual(len(points.to_pandas()), 2)
        with self.assertRaisesRegex(KeyError, "no table 'nothing'"):
            points.to_pandas("nothing")


class Failures(unittest.TestCase):
    def test_kinds_of_errors(self):
        told = subprocess.run([EXECUTABLE, "predict", "--set", "workload=rm11", "--set", "system=dgx-h100"], capture_output=True, text=True)
        with self.assertRaises(stepcast.InputError) as caught:
            stepcast.predict(set={**SMALL, "workload": "rm11"})
        self.assertEqual(f"stepcast: --{caught.exception}", told.stderr.strip())
        self.assertIsInstance(caught.exception, ValueError)
        self.assertEqual(caught.exception.code, told.returncode)
        with self.assertRaisesRegex(AttributeError, "did you mean 'iteration_time_s'"):
            stepcast.predict(SMALL).itration_time_s

    def test_a_no_is_an_answer(self):
        large = {"workload": "gpt3-175b", "system": "dgx-h100"}
        answer = stepcast.predict(large, as_is=True)
        self.assertEqual((answer.exit_code, answer.fits), (1, False))

    def test_a_long_call_tells_how_far_it_is(self):
        told = []
        stepcast.plan({"workload": "llama3-8b", "system": "dgx-h100", "devices": 8}, progress=lambda share, note: told.append((share, note)))
        self.assertGreater(len(told), 0)
        self.assertTrue(all(0 <= share <= 1 for share, _ in told))

        class Enough(Exception):
            pass

        def stop(share, note):
            raise Enough

        with self.assertRaises(Enough):  # what it raises ends the call
            stepcast.plan({"workload": "gpt3-175b", "system": "dgx-a100-80gb", "devices": 4096}, progress=stop)

    def test_what_is_kept_between_calls_is_the_library_s_alone(self):
        before = stepcast.predict(SMALL).to_dict()
        slow = stepcast.predict(SMALL, set={"system.device.bandwidth": "100 GB/s"})
        self.assertGreater(slow.iteration_time_s, before["iteration_time_s"])
        self.assertEqual(stepcast.predict(SMALL).to_dict(), before)
        with tempfile.TemporaryDirectory() as folder:  # a file of the user's is read each time
            file = pathlib.Path(folder) / "mine.json"
            system = json.loads((ROOT / "models" / "systems" / "dgx-h100.json").read_text())
            device = json.loads((ROOT / "models" / "devices" / f"{system['device']}.json").read_text())
            for memory in (100, 200):
                file.write_text(json.dumps({**system, "device": {**device, "memory": f"{memory} GB"}}))
                self.assertEqual(stepcast.predict({"workload": "rm1", "system": str(file)}).memory_bytes.capacity, memory * 1e9)

    def test_calls_at_once_do_not_mix(self):
        expected = {n: stepcast.predict(SMALL, set={"devices": n}).to_dict() for n in (1, 2, 4, 8)}
        got = {}
        threads = [threading.Thread(target=lambda n=n: got.update({n: stepcast.predict(SMALL, set={"devices": n}).to_dict()})) for n in expected]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, expected)

    def test_a_call_takes_under_two_milliseconds_beyond_the_command(self):
        def call():
            begin = time.process_time()
            _call.run("list", ["passes"], {})
            return time.process_time() - begin

        self.assertLess(sorted(call() for _ in range(41))[20], 2e-3)

    def test_other_threads_go_on(self):
        counted = 0
        worker = threading.Thread(target=lambda: stepcast.predict(SMALL))
        worker.start()
        while worker.is_alive():
            counted += 1
            time.sleep(0.001)
        self.assertGreater(counted, 1)


if __name__ == "__main__":
    unittest.main()
