import stepcast

stepcast.predict(8)  # wrong: no job
stepcast.predict("job.json", set=["devices=8"])  # wrong: settings are a mapping
stepcast.plan("job.json", progress="none")  # wrong: no function
count: int = stepcast.convert("trace", "out.json")  # wrong: a path
