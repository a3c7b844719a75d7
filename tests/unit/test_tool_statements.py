"""What tools send when they connect and when they list schemas, relations and columns: every statement is answered sensibly.

The tools themselves are not run here. Grafana's statements are those of its source; the others follow what is known of the tools
and may differ from a given release. They are shortened where a part is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from relation_shop import purchases, relation_shop
from wire_client import WireClient, errors, rows, served

PATH = "string_to_array(current_setting('search_path'),',')"
IN_PATH = f"""quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
    FROM generate_series(array_lower({PATH},1), array_upper({PATH},1)) as i, {PATH} s)"""
GRAFANA = {
    "version": "SELECT current_setting('server_version_num')::int/100 as version",
    "timescale": "SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'",
    "schemas": """SELECT schema_name AS "name" FROM information_schema.schemata
        WHERE schema_name NOT IN ('information_schema', 'pg_catalog', 'pg_toast') ORDER BY schema_name""",
    "tables of a schema": """SELECT quote_ident(table_name) AS "table" FROM information_schema.tables
        WHERE quote_ident(table_schema) = 'public' ORDER BY 1""",
    "tables": f"""SELECT CASE WHEN {IN_PATH} THEN quote_ident(table_name)
        ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table" FROM information_schema.tables
        WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog')
        ORDER BY CASE WHEN {IN_PATH} THEN 0 ELSE 1 END, 1""",
    "columns": f"""SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns
        WHERE CASE WHEN array_length(parse_ident('spend'),1) = 2
        THEN quote_ident(table_schema) = (parse_ident('spend'))[1] AND quote_ident(table_name) = (parse_ident('spend'))[2]
        ELSE quote_ident(table_name) = 'spend' AND {IN_PATH} END""",
    "a panel": """SELECT floor(extract(epoch from "moment")/300)*300 AS "time", avg(amount) AS "amount" FROM purchases
        WHERE "moment" BETWEEN '2026-01-01T00:00:00Z' AND '2026-01-01T00:00:30Z' GROUP BY 1 ORDER BY 1""",
}
METABASE = {
    "connects": "SELECT 1",
    "schemas": """SELECT nspname AS TABLE_SCHEM, current_database() AS TABLE_CATALOG FROM pg_catalog.pg_namespace
        WHERE nspname <> 'pg_toast' AND (nspname !~ '^pg_temp_' OR nspname = (pg_catalog.current_schemas(true))[1])
        AND (nspname !~ '^pg_toast_temp_' OR nspname = replace((pg_catalog.current_schemas(true))[1], 'pg_temp_',
        'pg_toast_temp_')) ORDER BY TABLE_SCHEM""",
    "tables": """SELECT n.nspname AS "schema", c.relname AS "name", CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'p' THEN
        'PARTITIONED TABLE' WHEN 'v' THEN 'VIEW' WHEN 'f' THEN 'FOREIGN TABLE' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE NULL END
        AS "type", d.description AS "description", NULLIF(stat.n_live_tup, 0) AS "estimated_row_count"
        FROM pg_catalog.pg_class AS c INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
        LEFT JOIN pg_catalog.pg_description AS d ON c.oid = d.objoid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass
        LEFT JOIN pg_stat_user_tables AS stat ON n.nspname = stat.schemaname AND c.relname = stat.relname
        WHERE c.relnamespace = n.oid AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
        AND c.relkind IN ('r', 'p', 'v', 'f', 'm') AND n.nspname IN ('public') ORDER BY "type" ASC, "schema" ASC, "name" ASC""",
    "privileges": """with table_privileges as (select NULL as role, t.schemaname as schema, t.objectname as table,
        pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"' || '.' || '"' ||
        replace(t.objectname, '"', '""') || '"', 'update') as update,
        pg_catalog.has_any_column_privilege(current_user, '"' || t.schemaname || '"."' || t.objectname || '"', 'select') as select,
        pg_catalog.has_table_privilege(current_user, '"' || t.schemaname || '"."' || t.objectname || '"', 'delete') as delete
        from (select schemaname, tablename as objectname from pg_catalog.pg_tables union
        select schemaname, viewname as objectname from pg_catalog.pg_views union
        select schemaname, matviewname as objectname from pg_catalog.pg_matviews) t
        where t.schemaname !~ '^pg_' and t.schemaname <> 'information_schema'
        and pg_catalog.has_schema_privilege(current_user, t.schemaname, 'usage'))
        select t.* from table_privileges t""",
    "fields": """SELECT c.column_name AS "name", CASE WHEN c.udt_schema IN ('public', 'pg_catalog') THEN
        FORMAT('%s', c.udt_name) ELSE FORMAT('"%s"."%s"', c.udt_schema, c.udt_name) END AS "database-type",
        c.ordinal_position - 1 AS "database-position", c.table_schema AS "table-schema", c.table_name AS "table-name",
        pk.column_name IS NOT NULL AS "pk?", COL_DESCRIPTION(CAST(CAST(FORMAT('%I.%I', CAST(c.table_schema AS TEXT),
        CAST(c.table_name AS TEXT)) AS REGCLASS) AS OID), c.ordinal_position) AS "field-comment",
        ((column_default IS NULL) OR (LOWER(column_default) = 'null')) AND (is_nullable = 'NO') AND NOT (((column_default IS NOT
        NULL) AND (column_default LIKE '%nextval(%')) OR (is_identity <> 'NO')) AS "database-required"
        FROM information_schema.columns AS c LEFT JOIN (SELECT tc.table_schema, tc.table_name, kc.column_name
        FROM information_schema.table_constraints AS tc INNER JOIN information_schema.key_column_usage AS kc
        ON (tc.constraint_name = kc.constraint_name) AND (tc.table_schema = kc.table_schema) AND (tc.table_name = kc.table_name)
        WHERE tc.constraint_type = 'PRIMARY KEY') AS pk ON (c.table_schema = pk.table_schema) AND (c.table_name = pk.table_name)
        AND (c.column_name = pk.column_name) WHERE c.table_schema !~ '^information_schema|catalog_history|pg_'
        AND (c.table_schema IN ('public')) AND (c.table_name IN ('spend'))
        UNION ALL SELECT pa.attname AS "name", CASE WHEN ptn.nspname IN ('public', 'pg_catalog') THEN FORMAT('%s', pt.typname)
        ELSE FORMAT('"%s"."%s"', ptn.nspname, pt.typname) END AS "database-type", pa.attnum - 1 AS "database-position",
        pn.nspname AS "table-schema", pc.relname AS "table-name", FALSE AS "pk?", NULL AS "field-comment",
        FALSE AS "database-required" FROM pg_catalog.pg_class AS pc INNER JOIN pg_catalog.pg_namespace AS pn ON pn.oid =
        pc.relnamespace INNER JOIN pg_catalog.pg_attribute AS pa ON pa.attrelid = pc.oid INNER JOIN pg_catalog.pg_type AS pt ON
        pt.oid = pa.atttypid INNER JOIN pg_catalog.pg_namespace AS ptn ON ptn.oid = pt.typnamespace
        WHERE (pc.relkind = 'm') AND (pa.attnum >= 1) ORDER BY "table-schema" ASC, "table-name" ASC, "database-position" ASC""",
    "enums": """SELECT nspname, typname FROM pg_type AS t INNER JOIN pg_namespace AS n ON n.oid = t.typnamespace
        WHERE t.oid IN (SELECT DISTINCT enumtypid FROM pg_enum AS e)""",
    "foreign keys": """SELECT fk_ns.nspname AS "fk-table-schema", fk_table.relname AS "fk-table-name", fk_column.attname AS
        "fk-column-name" FROM pg_constraint AS c INNER JOIN pg_class AS fk_table ON c.conrelid = fk_table.oid INNER JOIN
        pg_namespace AS fk_ns ON c.connamespace = fk_ns.oid INNER JOIN pg_attribute AS fk_column ON c.conrelid =
        fk_column.attrelid WHERE fk_ns.nspname !~ '^information_schema|catalog_history|pg_' AND c.contype = 'f'
        AND fk_column.attnum = ANY(c.conkey) ORDER BY "fk-table-schema", "fk-table-name" """,
    "indexes": """SELECT tmp.table_name, TRIM(BOTH '"' FROM pg_catalog.pg_get_indexdef(tmp.ci_oid, tmp.pos, false)) AS "field"
        FROM (SELECT ct.relname AS table_name, ci.oid AS ci_oid, (information_schema._pg_expandarray(i.indkey)).n AS pos
        FROM pg_catalog.pg_class ct JOIN pg_catalog.pg_index i ON ct.oid = i.indrelid JOIN pg_catalog.pg_class ci ON ci.oid =
        i.indexrelid WHERE ct.relname = 'spend') tmp""",
    "time zone": "SHOW TIMEZONE",
    "begins": "BEGIN READ ONLY",
    "a question": """SELECT "source"."user" AS "user", SUM("source"."n") AS "sum" FROM (SELECT "public"."spend"."user" AS "user",
        "public"."spend"."n" AS "n" FROM "public"."spend") AS "source" GROUP BY "source"."user" ORDER BY "source"."user" ASC
        LIMIT 2000""",
    "by day": """SELECT DATE_TRUNC('day', "public"."purchases"."moment") AS "moment", COUNT(*) AS "count" FROM
        "public"."purchases" GROUP BY DATE_TRUNC('day', "public"."purchases"."moment") ORDER BY 1 ASC""",
    "ends": "ROLLBACK",
}
DBEAVER = {
    "digits": "SET extra_float_digits = 3",
    "name": "SET application_name = 'DBeaver 25.1.5 - Main <hayase>'",
    "session": "SELECT current_schema(),session_user",
    "server": "SELECT version()",
    "path": "SHOW search_path",
    "database": "SELECT db.oid,db.* FROM pg_catalog.pg_database db WHERE datname='hayase'",
    "databases": """SELECT db.oid,db.* FROM pg_catalog.pg_database db WHERE 1 = 1 AND datallowconn AND NOT datistemplate
        OR db.datname ='hayase' ORDER BY db.datname""",
    "setting": "SELECT * FROM pg_catalog.pg_settings where name='standard_conforming_strings'",
    "keywords": """select string_agg(word, ',') from pg_catalog.pg_get_keywords()
        where word <> ALL ('{a,abs,absolute,action}'::text[])""",
    "schemas": """SELECT n.oid,n.*,d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d
        ON d.objoid=n.oid AND d.objsubid=0 AND d.classoid='pg_namespace'::regclass ORDER BY nspname""",
    "type in path": """SELECT n.nspname = ANY(current_schemas(true)), n.nspname, t.typname FROM pg_catalog.pg_type t
        JOIN pg_catalog.pg_namespace n ON t.typnamespace = n.oid WHERE t.oid = 1034""",
    "types": """SELECT t.oid,t.*,c.relkind,format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name, d.description
        FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid=t.typelem LEFT OUTER JOIN pg_catalog.pg_class c
        ON c.oid=t.typrelid LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid=d.objoid WHERE t.typname IS NOT NULL
        AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C')""",
    "relations": """SELECT c.oid,c.*,d.description,pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr,
        pg_catalog.pg_get_partkeydef(c.oid) as partition_key FROM pg_catalog.pg_class c LEFT OUTER JOIN
        pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass
        WHERE c.relnamespace=2200 AND c.relkind not in ('i','I','c')""",
    "sizes": """select c.oid,pg_catalog.pg_total_relation_size(c.oid) as total_rel_size,pg_catalog.pg_relation_size(c.oid) as
        rel_size FROM pg_class c WHERE c.relnamespace=2200""",
    "columns": """SELECT c.relname,a.*,pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) as def_value,dsc.description,dep.objid
        FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON (a.attrelid=c.oid) LEFT OUTER JOIN
        pg_catalog.pg_attrdef ad ON (a.attrelid=ad.adrelid AND a.attnum = ad.adnum) LEFT OUTER JOIN pg_catalog.pg_description
        dsc ON (c.oid=dsc.objoid AND a.attnum = dsc.objsubid) LEFT OUTER JOIN pg_depend dep on dep.refobjid = a.attrelid AND
        dep.deptype = 'i' and dep.refobjsubid = a.attnum and dep.classid = dep.refclassid WHERE NOT a.attisdropped
        AND c.relkind not in ('i','I','c') AND c.relname='spend' ORDER BY a.attnum""",
    "constraints": """SELECT c.oid,c.*,t.relname as tabrelname,rt.relnamespace as refnamespace,d.description, case when
        c.contype='c' then "substring"(pg_get_constraintdef(c.oid), 7) else null end consrc_copy FROM pg_catalog.pg_constraint c
        INNER JOIN pg_catalog.pg_class t ON t.oid=c.conrelid LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid=c.confrelid
        LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_constraint'::regclass
        WHERE c.conrelid=16385 ORDER BY c.oid""",
    "indexes": """SELECT i.*,i.indkey as keys,c.relname,c.relnamespace,c.relam,c.reltablespace,tc.relname as tabrelname,
        dsc.description,pg_catalog.pg_get_expr(i.indpred, i.indrelid) as pred_expr,pg_catalog.pg_get_expr(i.indexprs, i.indrelid,
        true) as expr,pg_catalog.pg_relation_size(i.indexrelid) as index_rel_size,
        pg_catalog.pg_stat_get_numscans(i.indexrelid) as index_num_scans FROM pg_catalog.pg_index i INNER JOIN
        pg_catalog.pg_class c ON c.oid=i.indexrelid INNER JOIN pg_catalog.pg_class tc ON tc.oid=i.indrelid LEFT OUTER JOIN
        pg_catalog.pg_description dsc ON i.indexrelid=dsc.objoid WHERE i.indrelid=16385 ORDER BY tabrelname, c.relname""",
    "rules": """SELECT r.oid,r.*,pg_get_ruledef(r.oid, true) AS definition FROM pg_rewrite r WHERE r.ev_class = 16385 AND
        r.rulename <> '_RETURN'::name""",
    "definition": "SELECT pg_catalog.pg_get_viewdef(16385, true)",
    "roles": "SELECT a.oid,a.* FROM pg_catalog.pg_roles a ORDER BY a.rolname",
    "extensions": """SELECT e.oid, e.extname, e.extversion, n.nspname AS schema_name FROM pg_catalog.pg_extension e
        LEFT JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace""",
    "rows": "SELECT x.* FROM public.spend x LIMIT 200",
}
TABLEAU = {
    "settings": "SET DateStyle = 'ISO'; SET extra_float_digits = 2; SHOW transaction_isolation",
    "large objects": "select oid, typbasetype from pg_type where typname = 'lo'",
    "tables": """select relname, nspname, relkind from pg_catalog.pg_class c, pg_catalog.pg_namespace n where relkind in
        ('r', 'v', 'm', 'f', 'p') and nspname not in ('pg_catalog', 'information_schema', 'pg_toast', 'pg_temp_1') and
        n.oid = relnamespace order by nspname, relname""",
    "columns": """select n.nspname, c.relname, a.attname, a.atttypid, t.typname, a.attnum, a.attlen, a.atttypmod, a.attnotnull,
        c.relhasrules, c.relkind, c.oid, pg_get_expr(d.adbin, d.adrelid), case t.typtype when 'd' then t.typbasetype else 0 end,
        t.typtypmod, 0, attidentity, c.relhassubclass from (((pg_catalog.pg_class c inner join pg_catalog.pg_namespace n on
        n.oid = c.relnamespace and c.relname like 'spend' and n.nspname like 'public') inner join pg_catalog.pg_attribute a on
        (not a.attisdropped) and a.attnum > 0 and a.attrelid = c.oid) inner join pg_catalog.pg_type t on t.oid = a.atttypid)
        left outer join pg_attrdef d on a.atthasdef and d.adrelid = a.attrelid and d.adnum = a.attnum
        order by n.nspname, c.relname, attnum""",
    "primary keys": """SELECT NULL AS TABLE_CAT, n.nspname AS TABLE_SCHEM, ct.relname AS TABLE_NAME, a.attname AS COLUMN_NAME,
        (information_schema._pg_expandarray(i.indkey)).n AS KEY_SEQ, ci.relname AS PK_NAME FROM pg_catalog.pg_class ct
        JOIN pg_catalog.pg_attribute a ON (ct.oid = a.attrelid) JOIN pg_catalog.pg_namespace n ON (ct.relnamespace = n.oid)
        JOIN pg_catalog.pg_index i ON (a.attrelid = i.indrelid) JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid)
        WHERE true AND n.nspname = 'public' AND ct.relname = 'spend' AND i.indisprimary""",
    "a view": """SELECT "spend"."user" AS "user", SUM("spend"."n") AS "sum:n:ok" FROM "public"."spend" "spend" GROUP BY 1""",
    "a sample": 'SELECT * FROM "public"."spend" "spend" LIMIT 0',
}
TOOLS = {"Grafana": GRAFANA, "Metabase": METABASE, "DBeaver": DBEAVER, "Tableau": TABLEAU}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pipeline = relation_shop(tmp_path_factory.mktemp("tools") / "shop")
    pipeline.append("purchases", purchases(0, 40))
    pipeline.run_until_idle(spark=False)
    return pipeline.home.path


@pytest.fixture(scope="module")
def client(home: Path) -> Iterator[WireClient]:
    with served(home) as port, closing(WireClient(port)) as made:
        yield made


@pytest.mark.parametrize("tool", TOOLS)
def test_every_statement_of_a_tool_is_answered(client: WireClient, tool: str) -> None:
    failed = {name: found for name, sql in TOOLS[tool].items() if (found := errors(client.query(sql)))}
    assert not failed
    if tool != "Metabase":  # which begins a transaction with one of them
        prepared = {
            name: found
            for name, sql in TOOLS[tool].items()
            if ";" not in sql and (found := errors(client.prepared(sql)))
        }
        assert not prepared


def test_relations_are_listed(client: WireClient) -> None:
    for sql in (GRAFANA["tables of a schema"], GRAFANA["tables"]):
        assert {b"spend", b"by_user", b"purchases"} <= {row[0] for row in rows(client.query(sql))}
    assert b"hayase.stages" in {row[0] for row in rows(client.query(GRAFANA["tables"]))}
    assert [b"public", b"by_user", b"VIEW", None, None] in rows(client.query(METABASE["tables"]))
    assert [b"by_user", b"public", b"v"] in rows(client.query(TABLEAU["tables"]))
    assert b"spend" in {row[2] for row in rows(client.query(DBEAVER["relations"]))}
    schemas = [{b"hayase", b"public"} <= {row[0] for row in rows(client.query(sql))}
               for sql in (GRAFANA["schemas"], METABASE["schemas"])]  # fmt: skip
    assert all(schemas)


def test_columns_are_listed_with_their_types(client: WireClient) -> None:
    assert rows(client.query(GRAFANA["columns"])) == [[b"user", b"text"], [b"spent", b"bigint"], [b"n", b"bigint"]]
    fields = rows(client.query(METABASE["fields"]))
    assert [row[:3] for row in fields] == [[b"user", b"text", b"0"], [b"spent", b"int8", b"1"], [b"n", b"int8", b"2"]]
    assert [row[2] for row in rows(client.query(TABLEAU["columns"]))] == [b"user", b"spent", b"n"]
    assert [row[2] for row in rows(client.query(DBEAVER["columns"]))] == [b"user", b"spent", b"n"]


def test_rows_are_given(client: WireClient) -> None:
    assert rows(client.query(GRAFANA["version"])) == [[b"1600"]]
    assert rows(client.query(METABASE["a question"])) == [[b"u0", b"13"], [b"u1", b"13"], [b"u2", b"13"]]
    assert len(rows(client.query(GRAFANA["a panel"]))) == 1
    assert rows(client.query(METABASE["by day"])) == [[b"2026-01-01 00:00:00+00", b"40"]]
