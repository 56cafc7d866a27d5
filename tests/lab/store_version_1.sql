-- A store of version 1 (the first one), dumped from stores that the SDK of that time wrote on a
-- local machine, a Docker engine, a Slurm cluster, a Kubernetes cluster, Brev and Lepton. On each,
-- a job runs and another one has failed. Read by old_store.py.
BEGIN TRANSACTION;
CREATE TABLE checkpoints (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        job_id TEXT NOT NULL REFERENCES jobs (job_id) ON DELETE CASCADE,
        path TEXT NOT NULL,
        epoch INTEGER NOT NULL DEFAULT 0,
        format TEXT NOT NULL DEFAULT 'safetensors',
        created_at TEXT NOT NULL
    );
INSERT INTO "checkpoints" VALUES(1,'fd62898f-e4b6-4ae5-b842-172320f6a486','/home/user/root/results/fd62898f-e4b6-4ae5-b842-172320f6a486/model_epoch_005.pth',5,'pth','2026-11-18T19:38:27.560484+00:00');
CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        job_id TEXT NOT NULL REFERENCES jobs (job_id) ON DELETE CASCADE,
        at TEXT NOT NULL,
        kind TEXT NOT NULL,
        from_status TEXT NOT NULL DEFAULT '',
        to_status TEXT NOT NULL DEFAULT '',
        message TEXT NOT NULL DEFAULT '',
        actor TEXT NOT NULL DEFAULT ''
    );
INSERT INTO "events" VALUES(1,'4748d831-664b-4c8c-ba9b-aea56449d4c2','2026-11-18T19:38:27.455020+00:00','submitting','','Pending','being submitted','21659@workstation');
INSERT INTO "events" VALUES(2,'4748d831-664b-4c8c-ba9b-aea56449d4c2','2026-11-18T19:38:27.517335+00:00','submitted','Pending','Pending','supervisor 21718','21659@workstation');
INSERT INTO "events" VALUES(3,'4748d831-664b-4c8c-ba9b-aea56449d4c2','2026-11-18T19:38:27.533652+00:00','status','Pending','Running','','21659@workstation');
INSERT INTO "events" VALUES(4,'fd62898f-e4b6-4ae5-b842-172320f6a486','2026-11-18T19:38:27.535828+00:00','submitting','','Pending','being submitted','21659@workstation');
INSERT INTO "events" VALUES(5,'fd62898f-e4b6-4ae5-b842-172320f6a486','2026-11-18T19:38:27.538265+00:00','submitted','Pending','Pending','supervisor 21719','21659@workstation');
INSERT INTO "events" VALUES(6,'fd62898f-e4b6-4ae5-b842-172320f6a486','2026-11-18T19:38:27.594300+00:00','status','Pending','Complete','completed','21659@workstation');
INSERT INTO "events" VALUES(7,'3090ce48-5132-4cac-a4bd-d16ed3907f32','2026-11-18T19:38:27.596303+00:00','submitting','','Pending','being submitted','21659@workstation');
INSERT INTO "events" VALUES(8,'3090ce48-5132-4cac-a4bd-d16ed3907f32','2026-11-18T19:38:27.601180+00:00','submitted','Pending','Pending','supervisor 21725','21659@workstation');
INSERT INTO "events" VALUES(9,'3090ce48-5132-4cac-a4bd-d16ed3907f32','2026-11-18T19:38:27.654637+00:00','status','Pending','Error','ended with exit code 3','21659@workstation');
INSERT INTO "events" VALUES(10,'d9c099f3-6b8f-40ef-9833-844b11769a07','2026-11-18T19:38:38.104142+00:00','submitting','','Pending','being submitted','22429@workstation');
INSERT INTO "events" VALUES(11,'d9c099f3-6b8f-40ef-9833-844b11769a07','2026-11-18T19:38:38.344089+00:00','submitted','Pending','Pending','started','22429@workstation');
INSERT INTO "events" VALUES(12,'d9c099f3-6b8f-40ef-9833-844b11769a07','2026-11-18T19:38:38.347731+00:00','status','Pending','Running','','22429@workstation');
INSERT INTO "events" VALUES(13,'b0eba3a1-313a-4c3c-a668-e40a5149e688','2026-11-18T19:38:38.730313+00:00','submitting','','Pending','being submitted','22429@workstation');
INSERT INTO "events" VALUES(14,'b0eba3a1-313a-4c3c-a668-e40a5149e688','2026-11-18T19:38:39.000626+00:00','submitted','Pending','Pending','started','22429@workstation');
INSERT INTO "events" VALUES(15,'b0eba3a1-313a-4c3c-a668-e40a5149e688','2026-11-18T19:38:39.006458+00:00','status','Pending','Running','','22429@workstation');
INSERT INTO "events" VALUES(16,'b0eba3a1-313a-4c3c-a668-e40a5149e688','2026-11-18T19:38:39.123084+00:00','status','Running','Error','ended with exit code 3','22429@workstation');
INSERT INTO "events" VALUES(17,'a1ade24e-4983-468a-a2e3-9a1e117aac9d','2026-11-18T19:38:47.766073+00:00','submitting','','Pending','being submitted','23185@workstation');
INSERT INTO "events" VALUES(18,'a1ade24e-4983-468a-a2e3-9a1e117aac9d','2026-11-18T19:38:47.813974+00:00','submitted','Pending','Pending','queued as 1','23185@workstation');
INSERT INTO "events" VALUES(19,'a1ade24e-4983-468a-a2e3-9a1e117aac9d','2026-11-18T19:38:48.017306+00:00','status','Pending','Running','running on node-1','23185@workstation');
INSERT INTO "events" VALUES(20,'e29ded10-9955-44d8-9fff-2bfc5a983c42','2026-11-18T19:38:49.551731+00:00','submitting','','Pending','being submitted','23185@workstation');
INSERT INTO "events" VALUES(21,'e29ded10-9955-44d8-9fff-2bfc5a983c42','2026-11-18T19:38:49.592769+00:00','submitted','Pending','Pending','queued as 3','23185@workstation');
INSERT INTO "events" VALUES(22,'e29ded10-9955-44d8-9fff-2bfc5a983c42','2026-11-18T19:38:49.972414+00:00','status','Pending','Running','running on node-1','23185@workstation');
INSERT INTO "events" VALUES(23,'e29ded10-9955-44d8-9fff-2bfc5a983c42','2026-11-18T19:38:51.721427+00:00','status','Running','Error','FAILED, says Slurm; exit code 3','23185@workstation');
INSERT INTO "events" VALUES(24,'db729028-dafe-4dcb-a390-b35d37f0f025','2026-11-18T19:39:42.630298+00:00','submitting','','Pending','being submitted','31326@workstation');
INSERT INTO "events" VALUES(25,'db729028-dafe-4dcb-a390-b35d37f0f025','2026-11-18T19:39:42.681777+00:00','submitted','Pending','Pending','submitted','31326@workstation');
INSERT INTO "events" VALUES(26,'db729028-dafe-4dcb-a390-b35d37f0f025','2026-11-18T19:39:43.944334+00:00','status','Pending','Running','','31326@workstation');
INSERT INTO "events" VALUES(27,'d1c1fc92-ff5c-40c7-b3c9-f9e5ebcd4ab8','2026-11-18T19:39:47.159395+00:00','submitting','','Pending','being submitted','31326@workstation');
INSERT INTO "events" VALUES(28,'d1c1fc92-ff5c-40c7-b3c9-f9e5ebcd4ab8','2026-11-18T19:39:47.205371+00:00','submitted','Pending','Pending','submitted','31326@workstation');
INSERT INTO "events" VALUES(29,'d1c1fc92-ff5c-40c7-b3c9-f9e5ebcd4ab8','2026-11-18T19:39:49.916772+00:00','status','Pending','Running','failing (BackoffLimitExceeded: Job has reached the specified backoff limit): its pods are being ended','31326@workstation');
INSERT INTO "events" VALUES(30,'d1c1fc92-ff5c-40c7-b3c9-f9e5ebcd4ab8','2026-11-18T19:39:50.074561+00:00','status','Running','Error','ended with exit code 3','31326@workstation');
INSERT INTO "events" VALUES(31,'30fefc96-9f7f-4b7d-a91e-c8852a21cebf','2026-11-18T19:38:56.267381+00:00','submitting','','Pending','being submitted','25750@workstation');
INSERT INTO "events" VALUES(32,'30fefc96-9f7f-4b7d-a91e-c8852a21cebf','2026-11-18T19:38:57.651427+00:00','submitted','Pending','Pending','on instance box','25750@workstation');
INSERT INTO "events" VALUES(33,'30fefc96-9f7f-4b7d-a91e-c8852a21cebf','2026-11-18T19:38:58.231138+00:00','status','Pending','Running','running on box','25750@workstation');
INSERT INTO "events" VALUES(34,'b0644aa4-ac7a-4bc2-8e9e-a2abca953298','2026-11-18T19:38:59.577045+00:00','submitting','','Pending','being submitted','25750@workstation');
INSERT INTO "events" VALUES(35,'b0644aa4-ac7a-4bc2-8e9e-a2abca953298','2026-11-18T19:39:00.459881+00:00','submitted','Pending','Pending','on instance box','25750@workstation');
INSERT INTO "events" VALUES(36,'b0644aa4-ac7a-4bc2-8e9e-a2abca953298','2026-11-18T19:39:01.020576+00:00','status','Pending','Error','ended with exit code 3','25750@workstation');
INSERT INTO "events" VALUES(37,'94adad16-25ba-47d5-b6a1-269f832d40bd','2026-11-18T19:38:28.119136+00:00','submitting','','Pending','being submitted','21659@workstation');
INSERT INTO "events" VALUES(38,'94adad16-25ba-47d5-b6a1-269f832d40bd','2026-11-18T19:38:28.127294+00:00','submitted','Pending','Pending','submitted','21659@workstation');
INSERT INTO "events" VALUES(39,'94adad16-25ba-47d5-b6a1-269f832d40bd','2026-11-18T19:38:28.233770+00:00','status','Pending','Running','','21659@workstation');
INSERT INTO "events" VALUES(40,'62a9f613-bdfd-4b36-9ec7-412e01a62a90','2026-11-18T19:38:28.343450+00:00','submitting','','Pending','being submitted','21659@workstation');
INSERT INTO "events" VALUES(41,'62a9f613-bdfd-4b36-9ec7-412e01a62a90','2026-11-18T19:38:28.350932+00:00','submitted','Pending','Pending','submitted','21659@workstation');
INSERT INTO "events" VALUES(42,'62a9f613-bdfd-4b36-9ec7-412e01a62a90','2026-11-18T19:38:28.494275+00:00','status','Pending','Error','ended with exit code 3','21659@workstation');
CREATE TABLE imports (
        path TEXT PRIMARY KEY,
        imported_at TEXT NOT NULL,
        jobs INTEGER NOT NULL
    );
INSERT INTO "imports" VALUES('/home/user/.tao_sdk/tao_session_state.db','2026-11-18T19:38:27.000000+00:00',0);
CREATE TABLE jobs (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        job_id TEXT NOT NULL UNIQUE,
        network_arch TEXT NOT NULL,
        action TEXT NOT NULL,
        workspace_id TEXT NOT NULL,
        backend_type TEXT NOT NULL DEFAULT '',
        backend_job_id TEXT NOT NULL DEFAULT '',
        status TEXT NOT NULL DEFAULT 'Pending' CHECK (status IN ('Pending', 'Running', 'Paused', 'Complete', 'Error', 'Canceled', 'Unknown')),
        parent_job_id TEXT REFERENCES jobs (job_id) DEFERRABLE INITIALLY DEFERRED,
        image TEXT NOT NULL DEFAULT '',
        specs TEXT NOT NULL DEFAULT '{}',
        results_dir TEXT NOT NULL DEFAULT '',
        local_results_dir TEXT NOT NULL DEFAULT '',
        base_checkpoint TEXT NOT NULL DEFAULT '',
        plan_id TEXT NOT NULL DEFAULT '',
        step_id INTEGER NOT NULL DEFAULT 0,
        last_epoch INTEGER NOT NULL DEFAULT 0,
        instance_id TEXT NOT NULL DEFAULT '',
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        phase TEXT NOT NULL DEFAULT 'recorded',
        token TEXT NOT NULL DEFAULT '',
        owner TEXT NOT NULL DEFAULT '',
        native TEXT NOT NULL DEFAULT '{}',
        request TEXT NOT NULL DEFAULT '{}',
        message TEXT NOT NULL DEFAULT '',
        observed_at TEXT NOT NULL DEFAULT '',
        poll_error TEXT NOT NULL DEFAULT '',
        poll_error_since TEXT NOT NULL DEFAULT '',
        missing_since TEXT NOT NULL DEFAULT '',
        cancel_requested_at TEXT NOT NULL DEFAULT '',
        started_at TEXT NOT NULL DEFAULT '',
        ended_at TEXT NOT NULL DEFAULT '',
        exit_code INTEGER,
        failure TEXT
    );
INSERT INTO "jobs" VALUES(1,'4748d831-664b-4c8c-ba9b-aea56449d4c2','','','local','local','tao-job-4748d831-664b-4c8c-ba9b-aea56449d4c2','Running',NULL,'','{}','/home/user/root/results/4748d831-664b-4c8c-ba9b-aea56449d4c2','/home/user/root/results/4748d831-664b-4c8c-ba9b-aea56449d4c2','','',0,0,'','2026-11-18T19:38:27.454440+00:00','2026-11-18T19:38:27.533402+00:00','submitted','fdc3a416187a4d6ba9047c3d318a2021','','{"folder": "/home/user/root/jobs/4748d831-664b-4c8c-ba9b-aea56449d4c2", "nodes": 1, "host": "workstation-1a2b3c4d/05731592/pid:[4026531836]", "root": "c5ad7198872855a5db47480f5ec8b516"}','{"command": "sleep 600", "image": "", "gpu_count": 0, "num_nodes": 1, "env_names": [], "options": {"when_busy": "wait"}}','','2026-11-18T19:38:27.533026+00:00','','','','','2026-11-18T19:38:27.514986+00:00','',NULL,NULL);
INSERT INTO "jobs" VALUES(2,'fd62898f-e4b6-4ae5-b842-172320f6a486','','','local','local','tao-job-fd62898f-e4b6-4ae5-b842-172320f6a486','Complete',NULL,'','{}','/home/user/root/results/fd62898f-e4b6-4ae5-b842-172320f6a486','/home/user/root/results/fd62898f-e4b6-4ae5-b842-172320f6a486','','',0,0,'','2026-11-18T19:38:27.535420+00:00','2026-11-18T19:38:27.594026+00:00','submitted','19a502f62ffb4c0ca368a817bf2a4075','','{"folder": "/home/user/root/jobs/fd62898f-e4b6-4ae5-b842-172320f6a486", "nodes": 1, "host": "workstation-1a2b3c4d/05731592/pid:[4026531836]", "root": "c5ad7198872855a5db47480f5ec8b516"}','{"command": "echo done", "image": "", "gpu_count": 0, "num_nodes": 1, "env_names": [], "options": {"when_busy": "wait"}}','completed','2026-11-18T19:38:27.593767+00:00','','','','','2026-11-18T19:38:27.538980+00:00','2026-11-18T19:38:27.560484+00:00',0,NULL);
INSERT INTO "jobs" VALUES(3,'3090ce48-5132-4cac-a4bd-d16ed3907f32','','','local','local','tao-job-3090ce48-5132-4cac-a4bd-d16ed3907f32','Error',NULL,'','{}','/home/user/root/results/3090ce48-5132-4cac-a4bd-d16ed3907f32','/home/user/root/results/3090ce48-5132-4cac-a4bd-d16ed3907f32','','',0,0,'','2026-11-18T19:38:27.595976+00:00','2026-11-18T19:38:27.760448+00:00','submitted','ba5607cb22304a3f9581f130e63a1256','','{"folder": "/home/user/root/jobs/3090ce48-5132-4cac-a4bd-d16ed3907f32", "nodes": 1, "host": "workstation-1a2b3c4d/05731592/pid:[4026531836]", "root": "c5ad7198872855a5db47480f5ec8b516"}','{"command": "exit 3", "image": "", "gpu_count": 0, "num_nodes": 1, "env_names": [], "options": {"when_busy": "wait"}}','ended with exit code 3','2026-11-18T19:38:27.654287+00:00','','','','','2026-11-18T19:38:27.598404+00:00','2026-11-18T19:38:27.642885+00:00',3,'{"err_class": "ERR_PROGRAM", "cause": "the command ended with exit code 3", "suggestion": "see the end of the log for the program''s own message", "evidence": [], "exit_code": 3, "node": "", "rank": 0, "retriable": false, "job_failure_by_node_event": [{"node_event_name": "rank 0", "message": "rank 0 ended with exit code 3"}]}');
INSERT INTO "jobs" VALUES(4,'d9c099f3-6b8f-40ef-9833-844b11769a07','','','','docker','tao-job-d9c099f3-6b8f-40ef-9833-844b11769a07','Running',NULL,'tao-lab/busybox:1','{}','/home/user/results/d9c099f3-6b8f-40ef-9833-844b11769a07','/home/user/results/d9c099f3-6b8f-40ef-9833-844b11769a07','','',0,0,'','2026-11-18T19:38:38.103703+00:00','2026-11-18T19:38:38.347618+00:00','submitted','c68756547b1b40a79220858d93f194c6','','{"daemon": "JN4K:CRKB:PUZZ:LNTG:OG6N:OGDR:TNXV:4NII:7OFZ:QNKK:3ZXF:YL37", "data": "1521e09309144e98990caf0af106f864", "endpoint": "unix:///home/user/docker.sock", "results": "/home/user/results", "image": "tao-lab/busybox:1", "secret_names": [], "id": "be7b0aa32924880b3cd2825dd7db4ab5c50e825d6b26f3c3d2ca45a9267d0d8c", "gpus": []}','{"command": "sleep 600", "image": "tao-lab/busybox:1", "gpu_count": 0, "num_nodes": 1, "env_names": [], "options": {"when_busy": "refuse", "mounts": ["Mount(source=''/home/user/results'', target=''/results'', read_only=False)", "Mount(source=''/home/user/starts'', target=''/starts'', read_only=False)"]}}','','2026-11-18T19:38:38.347480+00:00','','','','','2026-11-18T19:38:38+00:00','',NULL,NULL);
INSERT INTO "jobs" VALUES(5,'b0eba3a1-313a-4c3c-a668-e40a5149e688','','','','docker','tao-job-b0eba3a1-313a-4c3c-a668-e40a5149e688','Error',NULL,'tao-lab/busybox:1','{}','/home/user/results/b0eba3a1-313a-4c3c-a668-e40a5149e688','/home/user/results/b0eba3a1-313a-4c3c-a668-e40a5149e688','','',0,0,'','2026-11-18T19:38:38.729919+00:00','2026-11-18T19:38:39.233294+00:00','submitted','82430c09a318478b92e6635c22cd0bfc','','{"daemon": "JN4K:CRKB:PUZZ:LNTG:OG6N:OGDR:TNXV:4NII:7OFZ:QNKK:3ZXF:YL37", "data": "1521e09309144e98990caf0af106f864", "endpoint": "unix:///home/user/docker.sock", "results": "/home/user/results", "image": "tao-lab/busybox:1", "secret_names": [], "id": "7d6d3b55552dbe884f3e6ae6694e4ef699d7d79f7f3e47d6b7d55dcbaa995e30", "gpus": []}','{"command": "exit 3", "image": "tao-lab/busybox:1", "gpu_count": 0, "num_nodes": 1, "env_names": [], "options": {"when_busy": "refuse", "mounts": ["Mount(source=''/home/user/results'', target=''/results'', read_only=False)", "Mount(source=''/home/user/starts'', target=''/starts'', read_only=False)"]}}','ended with exit code 3','2026-11-18T19:38:39.122668+00:00','','','','','2026-11-18T19:38:38+00:00','2026-11-18T19:38:39.122513+00:00',3,'{"err_class": "ERR_PROGRAM", "cause": "the command ended with exit code 3", "suggestion": "see the end of the log for the program''s own message", "evidence": [], "exit_code": 3, "node": "", "rank": null, "retriable": false, "job_failure_by_node_event": []}');
INSERT INTO "jobs" VALUES(6,'a1ade24e-4983-468a-a2e3-9a1e117aac9d','','','','slurm','tao-job-a1ade24e-4983-468a-a2e3-9a1e117aac9d','Running',NULL,'/srv/lab/images/python.sqsh','{}','lustre:///srv/lab/lustre/fsw/users/work/results/a1ade24e-4983-468a-a2e3-9a1e117aac9d','','','',0,0,'','2026-11-18T19:38:47.765427+00:00','2026-11-18T19:38:48.016803+00:00','submitted','dcb9d77252b24b61b3c21cade6519901','','{"base": "/srv/lab/lustre/fsw/users/work", "cluster": "taolab", "nodes": 1, "slurm_job_id": "1", "job_dir": "/srv/lab/lustre/fsw/users/work/jobs/a1ade24e-4983-468a-a2e3-9a1e117aac9d"}','{"command": "sleep 600", "image": "/srv/lab/images/python.sqsh", "gpu_count": 0, "num_nodes": 1, "env_names": [], "options": {}}','running on node-1','2026-11-18T19:38:48.016253+00:00','','','','','','',NULL,NULL);
INSERT INTO "jobs" VALUES(7,'e29ded10-9955-44d8-9fff-2bfc5a983c42','','','','slurm','tao-job-e29ded10-9955-44d8-9fff-2bfc5a983c42','Error',NULL,'/srv/lab/images/python.sqsh','{}','lustre:///srv/lab/lustre/fsw/users/work/results/e29ded10-9955-44d8-9fff-2bfc5a983c42','','','',0,0,'','2026-11-18T19:38:49.551260+00:00','2026-11-18T19:38:51.921517+00:00','submitted','29268c8615ef4a768ed1651f9ffda6a9','','{"base": "/srv/lab/lustre/fsw/users/work", "cluster": "taolab", "nodes": 1, "slurm_job_id": "3", "job_dir": "/srv/lab/lustre/fsw/users/work/jobs/e29ded10-9955-44d8-9fff-2bfc5a983c42"}','{"command": "exit 3", "image": "/srv/lab/images/python.sqsh", "gpu_count": 0, "num_nodes": 1, "env_names": [], "options": {}}','FAILED, says Slurm; exit code 3','2026-11-18T19:38:51.720998+00:00','','','','','2026-11-18T19:38:51Z','2026-11-18T19:38:51Z',3,'{"err_class": "ERR_PROGRAM", "cause": "the command ended with exit code 3", "suggestion": "see the end of the log for the program''s own message", "evidence": ["srun: launch/slurm: _step_signal: Terminating StepId=3.0"], "exit_code": 3, "node": "", "rank": null, "retriable": false, "job_failure_by_node_event": []}');
INSERT INTO "jobs" VALUES(8,'db729028-dafe-4dcb-a390-b35d37f0f025','','','','kubernetes','tao-job-db729028-dafe-4dcb-a390-b35d37f0f025','Running',NULL,'tao-lab/busybox:1','{}','pvc://lab-18ec6123f3@results/db729028-dafe-4dcb-a390-b35d37f0f025','','','',0,0,'','2026-11-18T19:39:42.629775+00:00','2026-11-18T19:39:43.944172+00:00','submitted','5645363af260492fb2cacb1f2d1e7de7','','{"server": "https://127.0.0.1:44417", "context": "lab", "cluster": "", "namespace": "lab-18ec6123f3", "nodes": 1, "results": "pvc://results", "pod": {"image": "tao-lab/busybox:1"}, "secret_names": [], "planned_at": "2026-11-18T19:39:42.621856+00:00", "ttl": 3600, "uid": "6cac7623-03f5-4f02-a3ab-8bd9a951e2b0"}','{"command": "sleep 600", "image": "tao-lab/busybox:1", "gpu_count": 0, "num_nodes": 1, "env_names": [], "options": {"node_selector": "{}", "resources": "{}", "mounts": ["Mount(source=''pvc://results'', target=''/results'', read_only=False)", "Mount(source=''pvc://starts'', target=''/starts'', read_only=False)"], "labels": "{}", "annotations": "{}", "host_network": false, "host_ipc": false, "gang": false, "retries": 0}}','','2026-11-18T19:39:43.943891+00:00','','','','','2026-11-18T19:39:42Z','',NULL,NULL);
INSERT INTO "jobs" VALUES(9,'d1c1fc92-ff5c-40c7-b3c9-f9e5ebcd4ab8','','','','kubernetes','tao-job-d1c1fc92-ff5c-40c7-b3c9-f9e5ebcd4ab8','Error',NULL,'tao-lab/busybox:1','{}','pvc://lab-18ec6123f3@results/d1c1fc92-ff5c-40c7-b3c9-f9e5ebcd4ab8','','','',0,0,'','2026-11-18T19:39:47.158991+00:00','2026-11-18T19:39:50.295379+00:00','submitted','5317d3c5ce9e440693f6ced55f73c07b','','{"server": "https://127.0.0.1:44417", "context": "lab", "cluster": "", "namespace": "lab-18ec6123f3", "nodes": 1, "results": "pvc://results", "pod": {"image": "tao-lab/busybox:1"}, "secret_names": [], "planned_at": "2026-11-18T19:39:47.158893+00:00", "ttl": 3600, "uid": "128747c4-fc30-4a8b-9564-80aed8453257"}','{"command": "exit 3", "image": "tao-lab/busybox:1", "gpu_count": 0, "num_nodes": 1, "env_names": [], "options": {"node_selector": "{}", "resources": "{}", "mounts": ["Mount(source=''pvc://results'', target=''/results'', read_only=False)", "Mount(source=''pvc://starts'', target=''/starts'', read_only=False)"], "labels": "{}", "annotations": "{}", "host_network": false, "host_ipc": false, "gang": false, "retries": 0}}','ended with exit code 3','2026-11-18T19:39:50.074064+00:00','','','','','2026-11-18T19:39:47Z','2026-11-18T19:39:49Z',3,'{"err_class": "ERR_PROGRAM", "cause": "the command ended with exit code 3", "suggestion": "see the end of the log for the program''s own message", "evidence": [], "exit_code": 3, "node": "node1", "rank": 0, "retriable": false, "job_failure_by_node_event": [{"node_event_name": "node1", "message": "rank 0 ended with exit code 3"}]}');
INSERT INTO "jobs" VALUES(10,'30fefc96-9f7f-4b7d-a91e-c8852a21cebf','','','','brev','tao-job-30fefc96-9f7f-4b7d-a91e-c8852a21cebf','Running',NULL,'tao-lab/busybox:1','{}','brev://box/srv/lab/disk/results/30fefc96-9f7f-4b7d-a91e-c8852a21cebf','','','',0,0,'','2026-11-18T19:38:56.266645+00:00','2026-11-18T19:38:58.230853+00:00','submitted','4ad4c7b021c84894b50591d4231109ba','','{"instance": "box", "ephemeral": false, "results": "/srv/lab/disk/results", "type": "", "price": null, "keep": false}','{"command": "sleep 600", "image": "tao-lab/busybox:1", "gpu_count": 0, "num_nodes": 1, "env_names": [], "options": {"instance_id": "box", "keep": false, "mounts": ["Mount(source=''/srv/lab/disk/results'', target=''/results'', read_only=False)", "Mount(source=''/srv/lab/disk/starts'', target=''/starts'', read_only=False)"]}}','running on box','2026-11-18T19:38:58.230426+00:00','','','','','','',NULL,NULL);
INSERT INTO "jobs" VALUES(11,'b0644aa4-ac7a-4bc2-8e9e-a2abca953298','','','','brev','tao-job-b0644aa4-ac7a-4bc2-8e9e-a2abca953298','Error',NULL,'tao-lab/busybox:1','{}','brev://box/srv/lab/disk/results/b0644aa4-ac7a-4bc2-8e9e-a2abca953298','','','',0,0,'','2026-11-18T19:38:59.576629+00:00','2026-11-18T19:39:02.013102+00:00','submitted','570dc3529cbc4786b88f85cd12c91562','','{"instance": "box", "ephemeral": false, "results": "/srv/lab/disk/results", "type": "", "price": null, "keep": false}','{"command": "exit 3", "image": "tao-lab/busybox:1", "gpu_count": 0, "num_nodes": 1, "env_names": [], "options": {"instance_id": "box", "keep": false, "mounts": ["Mount(source=''/srv/lab/disk/results'', target=''/results'', read_only=False)", "Mount(source=''/srv/lab/disk/starts'', target=''/starts'', read_only=False)"]}}','ended with exit code 3','2026-11-18T19:39:01.020057+00:00','','','','','2026-11-18T19:39:00.698671+00:00','2026-11-18T19:39:00.711366+00:00',3,'{"err_class": "ERR_PROGRAM", "cause": "the command ended with exit code 3", "suggestion": "see the end of the log for the program''s own message", "evidence": [], "exit_code": 3, "node": "", "rank": null, "retriable": false, "job_failure_by_node_event": []}');
INSERT INTO "jobs" VALUES(12,'94adad16-25ba-47d5-b6a1-269f832d40bd','','','played-ws','lepton','tao-94adad1625ba47d5b6a1269f832d40bd-q6lh','Running',NULL,'busybox:1.36','{}','lepton-volume://lustre/team/results/94adad16-25ba-47d5-b6a1-269f832d40bd','','','',0,0,'','2026-11-18T19:38:28.118515+00:00','2026-11-18T19:38:28.233493+00:00','submitted','c0e76164f9b646ce9b6a93d4932692ea','','{"workspace": "played-ws", "url": "http://127.0.0.1:43867/api/v2/workspaces/played-ws", "id": "tao-94adad1625ba47d5b6a1269f832d40bd-q6lh", "nodes": 1, "made_at": 1795030708, "secrets": ["TAO_94adad1625ba47d5b6a1269f832d40bd_6afdfeb4_TAO_SUBMISSION"], "group": "ng-main", "image": "busybox:1.36", "pull_secrets": [], "results": ["node-nfs:lustre", "/team", "/team/results"]}','{"command": "sleep 600", "image": "busybox:1.36", "gpu_count": 0, "num_nodes": 1, "env_names": [], "options": {"dedicated_node_group": "main", "ttl_seconds": 259200, "visibility": "private"}}','','2026-11-18T19:38:28.233218+00:00','','','','','2026-11-18T19:38:28.123000+00:00','',NULL,NULL);
INSERT INTO "jobs" VALUES(13,'62a9f613-bdfd-4b36-9ec7-412e01a62a90','','','played-ws','lepton','tao-62a9f613bdfd4b369ec7412e01a62a90-4pw4','Error',NULL,'busybox:1.36','{}','lepton-volume://lustre/team/results/62a9f613-bdfd-4b36-9ec7-412e01a62a90','','','',0,0,'','2026-11-18T19:38:28.343105+00:00','2026-11-18T19:38:28.672761+00:00','submitted','32cdf8a63bb44b88bac7619317b472f1','','{"workspace": "played-ws", "url": "http://127.0.0.1:43867/api/v2/workspaces/played-ws", "id": "tao-62a9f613bdfd4b369ec7412e01a62a90-4pw4", "nodes": 1, "made_at": 1795030708, "secrets": ["TAO_62a9f613bdfd4b369ec7412e01a62a90_6afdfeb4_TAO_SUBMISSION"], "group": "ng-main", "image": "busybox:1.36", "pull_secrets": [], "results": ["node-nfs:lustre", "/team", "/team/results"]}','{"command": "exit 3", "image": "busybox:1.36", "gpu_count": 0, "num_nodes": 1, "env_names": [], "options": {"dedicated_node_group": "main", "ttl_seconds": 259200, "visibility": "private"}}','ended with exit code 3','2026-11-18T19:38:28.493678+00:00','','','','','2026-11-18T19:38:28Z','2026-11-18T19:38:28Z',3,'{"err_class": "ERR_PROGRAM", "cause": "the command ended with exit code 3", "suggestion": "see the end of the log for the program''s own message", "evidence": [], "exit_code": 3, "node": "node-8vd", "rank": 0, "retriable": false, "job_failure_by_node_event": [{"node_event_name": "node-8vd", "message": "rank 0 ended with exit code 3"}]}');
CREATE INDEX jobs_by_status ON jobs (status);
CREATE INDEX jobs_by_backend ON jobs (backend_type);
CREATE INDEX jobs_by_backend_and_status ON jobs (backend_type, status);
CREATE INDEX jobs_active ON jobs (backend_type) WHERE status NOT IN ('Canceled', 'Complete', 'Error');
CREATE INDEX jobs_unsettled ON jobs (backend_type) WHERE phase = 'submitting';
CREATE INDEX jobs_by_parent ON jobs (parent_job_id) WHERE parent_job_id IS NOT NULL;
CREATE INDEX jobs_by_step ON jobs (plan_id, step_id) WHERE plan_id <> '';
CREATE INDEX checkpoints_by_job ON checkpoints (job_id);
CREATE INDEX events_by_job ON events (job_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('jobs',13);
INSERT INTO "sqlite_sequence" VALUES('events',42);
INSERT INTO "sqlite_sequence" VALUES('checkpoints',1);
COMMIT;
