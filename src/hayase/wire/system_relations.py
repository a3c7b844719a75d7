"""The relations that tools for PostgreSQL look into to find out what there is: `pg_catalog` and `information_schema`.

They describe the relations of a home as views without keys. What a home has not, such as indexes and roles, is empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from hayase.relations.relation import Figures, Relation
from hayase.relations.relation_catalogue import OWN, PUBLIC, Catalogue
from hayase.wire.column_types import NAMES, column_type
from hayase.wire.dialect import DATABASE, FIRST_HIDDEN, USER

__all__ = ["with_system_relations"]

_SYSTEM, _INFORMATION = "pg_catalog", "information_schema"
_SCHEMAS = {_SYSTEM: 11, PUBLIC: 2200, OWN: 16_000, _INFORMATION: 13_000}
_FIRST = 16_384
_INT, _TEXT, _BOOL, _TEXTS, _INTS = pa.int64(), pa.string(), pa.bool_(), pa.list_(pa.string()), pa.list_(pa.int64())
_COLUMNS = {"i": _INT, "t": _TEXT, "b": _BOOL, "T": _TEXTS, "I": _INTS, "f": pa.float64()}
Rows = list[dict[str, Any]]


def with_system_relations(catalogue: Catalogue) -> Catalogue:
    """Return a catalogue that also has the relations which describe it."""
    described = [
        (number + (_FIRST if schema == PUBLIC else FIRST_HIDDEN), _SCHEMAS[schema], schema, relation)
        for number, ((schema, _), relation) in enumerate(catalogue.relations.items())
    ]
    system = {(_SYSTEM, table.name): table for table in _system(described)}
    information = {(_INFORMATION, table.name): table for table in _information(described)}
    return replace(catalogue, relations={**catalogue.relations, **system, **information})


_Described = list[tuple[int, int, str, Relation]]


def _table(name: str, columns: str, rows: Rows | None = None) -> Figures:
    """Return a relation; the columns are written as name:kind, separated by blanks. A row may leave columns out."""
    fields = [(part.split(":")[0], _COLUMNS[part.split(":")[1]]) for part in columns.split()]
    schema = pa.schema(fields)
    return Figures(name, schema, lambda: [{field: row.get(field) for field in schema.names} for row in rows or []])


def _system(described: _Described) -> Iterator[Figures]:
    yield _table("pg_namespace", "oid:i nspname:t nspowner:i nspacl:T", [
        {"oid": oid, "nspname": name, "nspowner": 10} for name, oid in _SCHEMAS.items()
    ])  # fmt: skip
    yield _table(
        "pg_class",
        "oid:i relname:t relnamespace:i reltype:i reloftype:i relowner:i relam:i relfilenode:i reltablespace:i relpages:i "
        "reltuples:f relallvisible:i reltoastrelid:i relhasindex:b relisshared:b relpersistence:t relkind:t relnatts:i "
        "relchecks:i relhasrules:b relhastriggers:b relhassubclass:b relrowsecurity:b relforcerowsecurity:b "
        "relispopulated:b relreplident:t relispartition:b relrewrite:i relacl:T reloptions:T relpartbound:t relhasoids:b",
        [_class(*each) for each in described],
    )
    yield _table(
        "pg_attribute",
        "attrelid:i attname:t atttypid:i attstattarget:i attlen:i attnum:i attndims:i attcacheoff:i atttypmod:i attbyval:b "
        "attstorage:t attalign:t attnotnull:b atthasdef:b atthasmissing:b attidentity:t attgenerated:t attisdropped:b "
        "attislocal:b attinhcount:i attcollation:i attacl:T attoptions:T attfdwoptions:T attcompression:t",
        [row for each in described for row in _attributes(*each)],
    )
    yield _table(
        "pg_type",
        "oid:i typname:t typnamespace:i typowner:i typlen:i typbyval:b typtype:t typcategory:t typispreferred:b typisdefined:b "
        "typdelim:t typrelid:i typsubscript:i typelem:i typarray:i typinput:t typoutput:t typnotnull:b typbasetype:i typtypmod:i "
        "typndims:i typcollation:i typdefault:t typreceive:t",
        list(_types()),
    )
    yield _table(
        "pg_database",
        "oid:i datname:t datdba:i encoding:i datlocprovider:t datistemplate:b datallowconn:b datconnlimit:i dattablespace:i "
        "datcollate:t datctype:t daticulocale:t daticurules:t datcollversion:t datacl:T datlocale:t",
        [{"oid": 1, "datname": DATABASE, "datdba": 10, "encoding": 6, "datistemplate": False, "datallowconn": True,
          "datconnlimit": -1, "datcollate": "C", "datctype": "C", "datlocprovider": "c"}],
    )  # fmt: skip
    role = {"oid": 10, "rolname": USER, "rolsuper": False, "rolinherit": True, "rolcanlogin": True, "rolconnlimit": -1}
    roles = "oid:i rolname:t rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b rolconnlimit:i"
    yield _table("pg_roles", f"{roles} rolvaliduntil:t rolbypassrls:b rolpassword:t rolconfig:T", [role])
    yield _table("pg_authid", roles, [role])
    yield _table("pg_user", "usename:t usesysid:i usesuper:b", [{"usename": USER, "usesysid": 10, "usesuper": False}])
    yield _table(
        "pg_settings", "name:t setting:t unit:t category:t short_desc:t context:t vartype:t source:t boot_val:t"
    )
    yield _table(
        "pg_tables", "schemaname:t tablename:t tableowner:t tablespace:t hasindexes:b hasrules:b hastriggers:b"
    )
    yield _table("pg_views", "schemaname:t viewname:t viewowner:t definition:t", [
        {"schemaname": schema, "viewname": relation.name, "viewowner": USER} for _, _, schema, relation in described
    ])  # fmt: skip
    for name, columns in _EMPTY.items():
        yield _table(name, columns)


_EMPTY = {
    "pg_am": "oid:i amname:t amhandler:i amtype:t",
    "pg_attrdef": "oid:i adrelid:i adnum:i adbin:t adsrc:t",
    "pg_auth_members": "roleid:i member:i grantor:i admin_option:b",
    "pg_cast": "oid:i castsource:i casttarget:i castfunc:i castcontext:t castmethod:t",
    "pg_collation": "oid:i collname:t collnamespace:i collowner:i collprovider:t collisdeterministic:b collencoding:i",
    "pg_constraint": "oid:i conname:t connamespace:i contype:t condeferrable:b condeferred:b convalidated:b conrelid:i contypid:i "
    "conindid:i conparentid:i confrelid:i confupdtype:t confdeltype:t confmatchtype:t conislocal:b connoinherit:b conkey:I "
    "confkey:I conbin:t conpfeqop:I",
    "pg_depend": "classid:i objid:i objsubid:i refclassid:i refobjid:i refobjsubid:i deptype:t",
    "pg_description": "objoid:i classoid:i objsubid:i description:t",
    "pg_enum": "oid:i enumtypid:i enumsortorder:f enumlabel:t",
    "pg_event_trigger": "oid:i evtname:t evtevent:t evtowner:i evtenabled:t",
    "pg_extension": "oid:i extname:t extowner:i extnamespace:i extrelocatable:b extversion:t extconfig:I extcondition:T",
    "pg_foreign_data_wrapper": "oid:i fdwname:t fdwowner:i fdwhandler:i fdwvalidator:i fdwoptions:T",
    "pg_foreign_server": "oid:i srvname:t srvowner:i srvfdw:i srvtype:t srvversion:t srvacl:T srvoptions:T",
    "pg_foreign_table": "ftrelid:i ftserver:i ftoptions:T",
    "pg_index": "indexrelid:i indrelid:i indnatts:i indnkeyatts:i indisunique:b indnullsnotdistinct:b indisprimary:b "
    "indisexclusion:b indimmediate:b indisclustered:b indisvalid:b indcheckxmin:b indisready:b indislive:b indisreplident:b "
    "indkey:I indcollation:I indclass:I indoption:I indexprs:t indpred:t",
    "pg_indexes": "schemaname:t tablename:t indexname:t tablespace:t indexdef:t",
    "pg_inherits": "inhrelid:i inhparent:i inhseqno:i inhdetachpending:b",
    "pg_language": "oid:i lanname:t",
    "pg_locks": "locktype:t pid:i mode:t granted:b relation:i transactionid:i",
    "pg_matviews": "schemaname:t matviewname:t matviewowner:t tablespace:t hasindexes:b ispopulated:b definition:t",
    "pg_opclass": "oid:i opcmethod:i opcname:t opcnamespace:i opcdefault:b opcintype:i",
    "pg_operator": "oid:i oprname:t oprnamespace:i oprleft:i oprright:i oprresult:i oprcode:i",
    "pg_partitioned_table": "partrelid:i partstrat:t partnatts:i partattrs:I",
    "pg_policy": "oid:i polname:t polrelid:i polcmd:t polpermissive:b polroles:I polqual:t polwithcheck:t",
    "pg_proc": "oid:i proname:t pronamespace:i proowner:i prolang:i prokind:t proretset:b prorettype:i pronargs:i proargtypes:I "
    "proargnames:T proargmodes:T proallargtypes:I prosrc:t probin:t proisagg:b provolatile:t prosecdef:b",
    "pg_publication": "oid:i pubname:t pubowner:i puballtables:b",
    "pg_publication_rel": "oid:i prpubid:i prrelid:i prqual:t prattrs:I",
    "pg_publication_namespace": "oid:i pnpubid:i pnnspid:i",
    "pg_range": "rngtypid:i rngsubtype:i rngmultitypid:i rngcollation:i rngsubopc:i",
    "pg_rewrite": "oid:i rulename:t ev_class:i ev_type:t ev_enabled:t is_instead:b",
    "pg_sequence": "seqrelid:i seqtypid:i seqstart:i seqincrement:i seqmax:i seqmin:i seqcache:i seqcycle:b",
    "pg_sequences": "schemaname:t sequencename:t sequenceowner:t data_type:t start_value:i last_value:i",
    "pg_shdescription": "objoid:i classoid:i description:t",
    "pg_shdepend": "dbid:i classid:i objid:i objsubid:i refclassid:i refobjid:i deptype:t",
    "pg_stat_activity": "datid:i datname:t pid:i usename:t application_name:t state:t query:t backend_start:t wait_event:t",
    "pg_stat_user_tables": "relid:i schemaname:t relname:t n_live_tup:i seq_scan:i idx_scan:i",
    "pg_statistic_ext": "oid:i stxrelid:i stxname:t stxnamespace:i stxowner:i stxkeys:I stxkind:T stxstattarget:i",
    "pg_tablespace": "oid:i spcname:t spcowner:i spcacl:T spcoptions:T",
    "pg_timezone_names": "name:t abbrev:t is_dst:b",
    "pg_trigger": "oid:i tgrelid:i tgparentid:i tgname:t tgfoid:i tgtype:i tgenabled:t tgisinternal:b tgconstraint:i "
    "tgdeferrable:b tginitdeferred:b tgnargs:i tgattr:I tgconstrrelid:i tgconstrindid:i",
}  # fmt: skip


def _class(oid: int, namespace: int, schema: str, relation: Relation) -> dict[str, Any]:
    nothing = dict.fromkeys(
        ("reltype", "reloftype", "relam", "relfilenode", "reltablespace", "relpages", "relallvisible", "reltoastrelid",
         "relchecks", "relrewrite"), 0,
    )  # fmt: skip
    flags = dict.fromkeys(
        ("relhasindex", "relisshared", "relhasrules", "relhastriggers", "relhassubclass", "relrowsecurity",
         "relforcerowsecurity", "relispartition", "relhasoids"), False,
    )  # fmt: skip
    return nothing | flags | {
        "oid": oid, "relname": relation.name, "relnamespace": namespace, "relowner": 10, "reltuples": -1.0,
        "relpersistence": "p", "relkind": "v", "relnatts": len(relation.schema), "relispopulated": True, "relreplident": "n",
    }  # fmt: skip


def _attributes(oid: int, namespace: int, schema: str, relation: Relation) -> Iterator[dict[str, Any]]:
    for number, field in enumerate(relation.schema, 1):
        kind = column_type(field.type)
        yield {
            "attrelid": oid, "attname": field.name, "atttypid": kind.oid, "attlen": kind.size, "attnum": number,
            "attndims": int(kind.name.endswith("[]")), "attcacheoff": -1, "atttypmod": -1, "attbyval": kind.size > 0,
            "attstorage": "p" if kind.size > 0 else "x", "attalign": "d", "attnotnull": not field.nullable, "atthasdef": False,
            "atthasmissing": False, "attidentity": "", "attgenerated": "", "attisdropped": False, "attislocal": True,
            "attinhcount": 0, "attcollation": 0, "attstattarget": -1, "attcompression": "",
        }  # fmt: skip


_SHORT = {
    "boolean": "bool", "bigint": "int8", "smallint": "int2", "integer": "int4", "real": "float4", "double precision": "float8",
    "time without time zone": "time", "timestamp without time zone": "timestamp", "timestamp with time zone": "timestamptz",
}  # fmt: skip


def _type_name(name: str) -> str:
    """Return the name of a type as `pg_type` has it.

    >>> _type_name("bigint"), _type_name("text[]")
    ('int8', '_text')
    """
    base = name.removesuffix("[]")
    return ("_" if name != base else "") + _SHORT.get(base, base)


def _types() -> Iterator[dict[str, Any]]:
    arrays = {name.removesuffix("[]"): oid for oid, name in NAMES.items() if name.endswith("[]")}
    elements = {name: oid for oid, name in NAMES.items()}
    others = {18: "char", 19: "name", 26: "oid", 1043: "varchar", 705: "unknown"}
    for oid, name in (NAMES | others).items():
        base = name.removesuffix("[]")
        is_array = name != base
        yield {
            "oid": oid, "typname": _type_name(name), "typnamespace": _SCHEMAS[_SYSTEM],
            "typowner": 10, "typlen": -1, "typbyval": False, "typtype": "b", "typcategory": "A" if is_array else _category(base),
            "typispreferred": False, "typisdefined": True, "typdelim": ",", "typrelid": 0, "typsubscript": 0,
            "typelem": elements.get(base, 0) if is_array else 0, "typarray": 0 if is_array else arrays.get(base, 0),
            "typinput": "array_in" if is_array else f"{base}in", "typoutput": "", "typnotnull": False, "typbasetype": 0,
            "typtypmod": -1, "typndims": 0, "typcollation": 0, "typreceive": "",
        }  # fmt: skip


def _category(name: str) -> str:
    if name == "boolean":
        return "B"
    if name.startswith(("time", "date")):
        return "D"
    return "N" if name in ("bigint", "smallint", "integer", "real", "double precision", "numeric", "oid") else "S"


def _information(described: _Described) -> Iterator[Figures]:
    yield _table("schemata", "catalog_name:t schema_name:t schema_owner:t", [
        {"catalog_name": DATABASE, "schema_name": name, "schema_owner": USER} for name in _SCHEMAS
    ])  # fmt: skip
    views = [
        {"table_catalog": DATABASE, "table_schema": schema, "table_name": relation.name, "table_type": "VIEW",
         "is_insertable_into": "NO", "is_typed": "NO", "check_option": "NONE", "is_updatable": "NO"}
        for _, _, schema, relation in described
    ]  # fmt: skip
    yield _table(
        "tables", "table_catalog:t table_schema:t table_name:t table_type:t is_insertable_into:t is_typed:t", views
    )
    yield _table(
        "views", "table_catalog:t table_schema:t table_name:t view_definition:t check_option:t is_updatable:t", views
    )
    yield _table(
        "columns",
        "table_catalog:t table_schema:t table_name:t column_name:t ordinal_position:i column_default:t is_nullable:t data_type:t "
        "character_maximum_length:i character_octet_length:i numeric_precision:i numeric_precision_radix:i numeric_scale:i "
        "datetime_precision:i udt_catalog:t udt_schema:t udt_name:t is_identity:t is_generated:t is_updatable:t",
        [row for each in described for row in _information_columns(*each)],
    )
    constraint = "constraint_catalog:t constraint_schema:t constraint_name:t"
    table = "table_catalog:t table_schema:t table_name:t"
    yield _table("table_constraints", f"{constraint} {table} constraint_type:t is_deferrable:t initially_deferred:t")
    yield _table(
        "key_column_usage", f"{constraint} {table} column_name:t ordinal_position:i position_in_unique_constraint:i"
    )
    yield _table("constraint_column_usage", f"{table} column_name:t {constraint}")
    yield _table(
        "referential_constraints", f"{constraint} unique_constraint_schema:t unique_constraint_name:t update_rule:t"
    )
    yield _table(
        "routines", "specific_schema:t specific_name:t routine_schema:t routine_name:t routine_type:t data_type:t"
    )
    yield _table("sequences", "sequence_catalog:t sequence_schema:t sequence_name:t data_type:t")
    yield _table("table_privileges", f"grantor:t grantee:t {table} privilege_type:t is_grantable:t", [
        view | {"grantor": USER, "grantee": USER, "privilege_type": "SELECT", "is_grantable": "NO"} for view in views
    ])  # fmt: skip


def _information_columns(oid: int, namespace: int, schema: str, relation: Relation) -> Iterator[dict[str, Any]]:
    for number, field in enumerate(relation.schema, 1):
        kind = column_type(field.type)
        yield {
            "table_catalog": DATABASE, "table_schema": schema, "table_name": relation.name, "column_name": field.name,
            "ordinal_position": number, "is_nullable": "YES" if field.nullable else "NO",
            "data_type": "ARRAY" if kind.name.endswith("[]") else kind.name, "udt_catalog": DATABASE, "udt_schema": _SYSTEM,
            "udt_name": _type_name(kind.name), "is_identity": "NO", "is_generated": "NEVER", "is_updatable": "NO",
        }  # fmt: skip
