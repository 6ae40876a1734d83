import stepcast

stepcast.predict(8)  # wrong: no job
stepcast.predict("job.json", set=["devices=8"])  # wrong: settings are a mapping
stepcast.predict("llama3-8b", gpu=8)  # wrong: no such option
stepcast.plan("job.json", progress="none")  # wrong: no function
seconds: str = stepcast.predict("job.json").iteration_time_s  # wrong: a number
